"""The loop of a compiled scan: each instruction with the line of our source that it is there for."""

import json
from pathlib import Path

import pytest

import tustin
from tests.interpreter import ROOT, needs_triton
from tustin.cli import main

pytestmark = needs_triton
KERNEL = Path(str(tustin.__file__)).parent / "ops" / "scan" / "triton_forward.py"


def test_a_stack_of_lines_stands_before_its_instructions() -> None:
    """Lines of other packages do not count."""
    from tustin.doctor.gpu.listing import parse

    number = next(n for n, line in enumerate(KERNEL.read_text().splitlines(), 1) if "weighted_sum(h, C_k[j]" in line)
    first, second, third = parse(
        f'''
        //## File "/elsewhere/standard.py", line 12 inlined at "{KERNEL}", line {number}
        //## File "{KERNEL}", line {number}
        /*0010*/              @!P0 FADD.FTZ R1, R2, R3 ;
        /*0020*/                   FMUL R1, R2, R3 ;
        //## File "/elsewhere/standard.py", line 1
        /*0030*/                   EXIT ;
        '''
    )
    assert (first.text, first.opcode) == ("@!P0 FADD.FTZ R1, R2, R3", "FADD.FTZ")
    assert first.stack == second.stack
    (place,) = first.stack
    assert str(place) == f"ops/scan/triton_forward.py:{number}"
    assert place.function == "forward"
    assert place.text.startswith("y = weighted_sum(h, C_k[j]")
    assert third.stack == ()


def test_the_listing_has_all_instructions_of_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tustin.doctor.gpu import cases
    from tustin.doctor.gpu.compile import compile_for
    from tustin.doctor.gpu.inspect import inspect
    from tustin.doctor.gpu.listing import BLOCK, as_text, by_line, listing

    found = listing("sm_90", "bil")
    code = inspect(compile_for("sm_90", cases.named("scan forward", "bil", "float32").launch))
    assert [line.opcode for line in found.lines] == [i.opcode for i in code.instructions if i.loop == code.loops - 1]
    assert len(as_text(found).splitlines()) == len(found.lines)
    *rows, total = by_line(found).rows
    assert sum(int(str(row[3])) for row in rows) == total[3] == len(found.lines)
    functions = {str(row[0]).partition(" <")[0] for row in rows}
    assert {"_bil_step", "forward", "softplus"} <= functions
    page = tmp_path / "page.md"
    page.write_text(f"{BLOCK.begin}\n{BLOCK.end}\n")
    assert main(["doctor", "--gpu-compile", "sm_90", "--listing", "bil", "--json", "--markdown", str(page)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [one["text"] for one in facts["instructions"]] == [line.text for line in found.lines]
    assert facts["per_token_and_state"] == found.per_update
    assert f"| all |  |  | {len(found.lines)} |" in page.read_text()


def test_the_page_of_the_project_has_a_listing() -> None:
    from tustin.doctor.gpu.listing import BLOCK

    path = ROOT / "docs" / "gpu.md"
    text = path.read_text()
    before, after = BLOCK.split(text, str(path))
    assert "The loop of hoh on sm\\_90" in text.removeprefix(before).removesuffix(after)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "--listing needs one NVIDIA GPU"),
        (["--gpu-compile"], "--listing needs one NVIDIA GPU"),
        (["--gpu-compile", "sm_80,sm_90"], "--listing needs one NVIDIA GPU"),
        (["--gpu-compile", "gfx942"], "--listing needs one NVIDIA GPU"),
        (["--gpu-compile", "sm_90", "--dtype", "float16"], "--listing works only for float32; leave out --dtype"),
    ],
)
def test_a_listing_is_of_one_gpu(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *argv, "--listing", "bil"]) == 2
    assert told in capsys.readouterr().err


def test_a_rule_without_a_kernel_has_no_listing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--gpu-compile", "sm_90", "--listing", "true_hoh"]) == 2
    assert "true_hoh has no GPU kernel to list" in capsys.readouterr().err
    assert main(["doctor", "--gpu-compile", "sm_90", "--listing", "hoo"]) == 2
    assert "hoh" in capsys.readouterr().err
