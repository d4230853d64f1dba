"""What is timed of MambaVision: the scan that the case names."""

from tests.compat.stand_in import imports_restored
from tests.compat.test_theirs import needs_mambavision
from tustin.bench import stand_in
from tustin.bench.stand_in import OURS, SLOW, MambaVisionCase


@needs_mambavision
def test_a_call_runs_the_scan_that_the_case_names() -> None:
    with imports_restored():
        stand_in._modules.cache_clear()
        stand_in._model.cache_clear()
        for scan in (OURS, SLOW):
            logits = stand_in.make_call(MambaVisionCase(scan=scan, batch=1))()
            assert logits.shape == (1, 1000)
            assert stand_in._modules()[0].selective_scan_fn.__name__ == scan
        stand_in._modules.cache_clear()
        stand_in._model.cache_clear()
