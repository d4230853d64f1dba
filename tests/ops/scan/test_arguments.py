"""The scan's arguments are described once: the signature, the operator's schema and the structures agree."""

import inspect

import torch

from tustin import selective_scan
from tustin.ops.scan.arguments import OPTIONAL, SCHEMA, Options, Tensors, split


def test_the_signature_has_them_all() -> None:
    parameters = inspect.signature(selective_scan).parameters
    assert set(Tensors._fields) | set(Options._fields) | {"return_last_state", "backend"} == set(parameters)
    assert {name for name in Tensors._fields if parameters[name].default is None} == OPTIONAL


def test_the_schema_is_made_of_them() -> None:
    assert SCHEMA == (
        "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias, "
        "Tensor? initial_state, Tensor? mix, bool delta_softplus, str discretization, bool reverse"
    )
    for operator, before in ((torch.ops.tustin.selective_scan, 0), (torch.ops.tustin.selective_scan_backward, 2)):
        names = [argument.name for argument in operator.default._schema.arguments]
        assert names[before:-1] == [*Tensors._fields, *Options._fields]


def test_flat_arguments_come_back_as_they_were() -> None:
    tensors, options = Tensors(*torch.ones(10)), Options(True, "zoh", False)
    again = split((*tensors, *options, "more"))
    assert again == (tensors, options)
    assert [type(structure) for structure in again] == [Tensors, Options]
