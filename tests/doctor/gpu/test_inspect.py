"""What is seen in compiled code: instructions, their kinds, and the loops that they are in."""

import pytest

from tests.interpreter import needs_triton

pytestmark = needs_triton

SASS = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;                     /* 0x00000a0000017a02 */
        /*0010*/                   LDG.E.128 R4, [R2.64] ;                    /* 0x0000000402047981 */
        /*0020*/              @!P0 LDG.E R8, [R2.64+0x10] ;                   /* 0x0000000402047981 */
        /*0030*/                   FFMA R4, R4, R5, R6 ;                      /* 0x0000000504047223 */
        /*0040*/                   STL [R1], R4 ;                             /* 0x0000000401007387 */
        /*0050*/               @P1 BRA 0x20 ;                                 /* 0x0000000000007947 */
        /*0060*/                   STG.E [R2.64], R4 ;                        /* 0x0000000402007986 */
        /*0070*/                   EXIT ;                                     /* 0x000000000000794d */
        /*0080*/                   BRA 0x80;                                  /* 0xfffffff000007947 */
"""
AMDGCN = """
kernel:
\ts_load_dwordx2 s[0:1], s[0:1], 0x0
\tv_mul_f32_e32 v0, v1, v2               ; a comment
.LBB0_1:
\tglobal_load_dword v3, v0, s[0:1]
\tv_exp_f32_e32 v4, v3
\ts_cbranch_scc1 .LBB0_1
\tbuffer_store_dwordx4 v[0:3], v4, s[0:3], 0 offen
\ts_endpgm
.Lfunc_end0:
\tv_mul_f32_e32 v0, v1, v2
"""


def test_nvidia_code_is_read() -> None:
    from tustin.doctor.gpu import inspect

    code = list(inspect._in_loops(inspect._sass(SASS), "cuda"))
    kinds = ["move", "global load", "global load", "float", "spill", "control", "global store", "control", "control"]
    assert [instruction.kind for instruction in code] == kinds
    assert [instruction.loop for instruction in code] == [None, None, 0, 0, 0, 0, None, None, None]


def test_amd_code_is_read() -> None:
    from tustin.doctor.gpu import inspect

    code = list(inspect._in_loops(inspect._amdgcn(AMDGCN), "hip"))
    assert [instruction.kind for instruction in code] == [
        *("move", "float", "global load", "special", "control", "global store", "control")
    ]
    assert [instruction.loop for instruction in code] == [None, None, 0, 0, 0, None, None]


def loops(listing: str) -> list[int | None]:
    """The loop of each instruction of a listing for NVIDIA: a line each, with a label before a colon, "to" a label."""
    from tustin.doctor.gpu.inspect import _in_loops, _sass

    lines = [line.strip() for line in listing.strip().splitlines()]
    places = {line.partition(":")[0]: 16 * number for number, line in enumerate(lines) if ":" in line}
    text = ""
    for number, line in enumerate(lines):
        opcode, _, target = line.rpartition(":")[2].strip().partition(" to ")
        text += f"/*{16 * number:04x}*/ {opcode} {f'{places[target]:#x}' if target else 'R0'} ;\n"
    return [instruction.loop for instruction in _in_loops(_sass(text), "cuda")]


def test_code_between_two_loops_is_in_neither() -> None:
    assert loops(
        """
        MOV
        a: FADD
        @P0 BRA to a
        FMUL
        b: FFMA
        @P1 BRA to b
        EXIT
        """
    ) == [None, 0, 0, None, 1, 1, None]


def test_a_block_that_stands_elsewhere_belongs_to_the_loop_that_it_returns_to() -> None:
    """And what stands between the jump back and its target, but is never reached from there, does not."""
    assert loops(
        """
        a: FADD
        @P0 BRA to rare
        back: FMUL
        @P1 BRA to a
        between: MOV
        b: FFMA
        @P2 BRA to b
        EXIT
        rare: FADD
        BRA to back
        """
    ) == [0, 0, 0, 0, None, 1, 1, None, 0, 0]


def test_a_jump_back_alone_is_no_loop() -> None:
    """The compiler may put a block before the one that leads to it."""
    assert (
        loops(
            """
        BRA to begin
        end: MOV
        EXIT
        begin: FADD
        BRA to end
        """
        )
        == [None] * 5
    )


def test_two_loops_one_after_the_other_inside_a_third() -> None:
    assert loops(
        """
        MOV
        outer: FADD
        a: FMUL
        @P0 BRA to a
        FADD
        b: FFMA
        @!P1 BRA to b
        @P2 BRA to outer
        EXIT
        end: BRA to end
        """
    ) == [None, 0, 1, 1, 0, 2, 2, 0, None, None]


def test_a_loop_that_is_entered_in_the_middle() -> None:
    assert loops(
        """
        BRA to test
        a: FADD
        test: FMUL
        @P0 BRA to a
        EXIT
        """
    ) == [None, 0, 0, 0, None]


def test_a_branch_by_a_predicate_among_its_operands_goes_on() -> None:
    from tustin.doctor.gpu.inspect import _sass

    for text, goes_on in {
        "BRA 0x0": False,
        "BRA P1, 0x0": True,
        "BRA.U !UP0, 0x0": True,
        "@!UP0 BRA 0x0": True,
        "@!PT BRA 0x0": True,
        "EXIT": False,
        "@P0 EXIT": True,
    }.items():
        (line,) = _sass(f"/*0000*/  {text} ;")
        assert line.goes_on == goes_on, text


def test_loops_are_counted_as_they_are_passed() -> None:
    """One in another: 10 times through the outer, 70 times through the inner, and two instructions once."""
    from tustin.doctor.gpu.inspect import Code, _in_loops, _sass

    text = ["MOV R0", "FADD R0", "FMUL R0", "@P0 BRA 0x20", "@P1 BRA 0x10", "EXIT"]
    lines = _sass("".join(f"/*{16 * number:04x}*/ {line} ;" for number, line in enumerate(text)))
    code = Code(8, 0, 0, 32, tuple(_in_loops(lines, "cuda")))
    assert [instruction.loop for instruction in code.instructions] == [None, 0, 1, 1, 0, None]
    assert code.executed((10, 70)) == 2 + 2 * 10 + 2 * 70
    assert code.executed((10, 70), "float", once=0) == 10 + 70
    with pytest.raises(RuntimeError, match="the compiled code has 2 loops, expected 1"):
        code.executed((10,))


def test_a_long_chain_is_no_problem() -> None:
    """Code is longer than Python's stack is deep."""
    from tustin.doctor.gpu.flow import innermost_loops

    length = 20_000
    assert innermost_loops([{number + 1} for number in range(length)] + [{0}]) == [0] * (length + 1)
