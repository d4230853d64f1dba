"""One ONNX function for the blocks of a model, which are the same nodes over other weights: the file says them once.

Runtimes put the body of a function back in its place when they load a file, so nothing but the file changes.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["outline_blocks"]

DOMAIN, NAME = "tustin", "block"
_LAYER = re.compile(r"(?:^|[/.])layers\.(\d+):")
_SMALL = 16
"""Up to so many numbers a constant that all blocks share stands in the function, not among its arguments."""


def outline_blocks(model: Any) -> int:
    """Replace each block by a call of one function, in place; the number of calls, 0 if the blocks are not alike."""
    import onnx_ir as ir

    blocks = _blocks(list(model.graph))
    if len(blocks) < 2 or len({tuple(map(_kind, block)) for block in blocks}) != 1:
        return 0
    produced = [
        {output: (n, o) for n, node in enumerate(block) for o, output in enumerate(node.outputs)} for block in blocks
    ]
    arguments: dict[tuple[Any, ...], None] = {}  # what comes from outside, as a value for each block
    for nodes in zip(*blocks, strict=True):
        for values in zip(*map(_read, nodes), strict=True):
            places = {inside.get(value) for inside, value in zip(produced, values, strict=True)}
            if len(places) != 1:
                return 0
            if places == {None} and values[0] is not None:
                arguments[values] = None
    results = [_results(block, model.graph) for block in blocks]
    if len({tuple(inside[value] for value in values) for inside, values in zip(produced, results, strict=True)}) != 1:
        return 0

    fixed = {values[0] for values in arguments if len(set(values)) == 1 and _is_small(values[0])}
    passed = [values for values in arguments if values[0] not in fixed]
    calls = [
        ir.Node(DOMAIN, NAME, list(own), num_outputs=len(old), name=f"block_{number}")
        for number, (own, old) in enumerate(zip(zip(*passed, strict=True), results, strict=True))
    ]
    for number, (block, call, old) in enumerate(zip(blocks, calls, results, strict=True)):
        model.graph.insert_before(block[0], call)
        for value, replacement in zip(old, call.outputs, strict=True):
            replacement.name, replacement.shape, replacement.type = f"tokens_{number}", value.shape, value.type
            _read_instead(value, replacement, _all_nodes(block), model.graph)
    for number, block in enumerate(blocks):
        model.graph.remove(block, safe=number > 0)  # the first lives on in the function
    function = _function(blocks[0], [values[0] for values in passed], fixed, results[0], model.opset_imports)
    model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1
    used = {value for node in _all_nodes(list(model.graph)) for value in node.inputs}
    for name in [name for name, value in model.graph.initializers.items() if value not in used]:
        del model.graph.initializers[name]
    return len(blocks)


def _blocks(nodes: list[Any]) -> list[list[Any]]:
    """The nodes of each layer: from the first to the last that says it belongs to it."""
    ranges: dict[int, tuple[int, int]] = {}
    for place, node in enumerate(nodes):
        if found := _LAYER.search(node.metadata_props.get("namespace", "")):
            layer = int(found[1])
            ranges[layer] = (ranges.get(layer, (place, place))[0], place)
    return [nodes[first : last + 1] for _, (first, last) in sorted(ranges.items())]


def _read(node: Any) -> list[Any]:
    """Every value that a node reads, also inside its graphs from around them."""
    values = list(node.inputs)
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH":
            graph = attribute.value
            own = {*graph.inputs, *graph.initializers.values(), *(v for inner in graph for v in inner.outputs)}
            values += [value for inner in graph for value in _read(inner) if value not in own]
            values += [value for value in graph.outputs if value not in own]
    return values


def _kind(node: Any) -> tuple[Any, ...]:
    """What a node is, apart from the values that it reads."""
    attributes: list[Any] = []
    for name, attribute in sorted(node.attributes.items()):
        value = attribute.value
        if attribute.type.name == "GRAPH":
            attributes.append((name, tuple(map(_kind, value))))
        elif attribute.type.name == "TENSOR":
            attributes.append((name, value.numpy().tobytes()))
        else:
            attributes.append((name, str(value)))
    return node.domain, node.op_type, len(node.inputs), len(node.outputs), tuple(attributes)


def _all_nodes(nodes: Any) -> set[Any]:
    """The nodes, and those inside their graphs."""
    found = set(nodes)
    for node in nodes:
        for attribute in node.attributes.values():
            if attribute.type.name == "GRAPH":
                found |= _all_nodes(list(attribute.value))
    return found


def _results(block: list[Any], graph: Any) -> list[Any]:
    """The values of a block that are read outside of it."""
    inside = _all_nodes(block)
    return [
        value
        for node in block
        for value in node.outputs
        if value in graph.outputs or any(use.node not in inside for use in value.uses())
    ]


def _read_instead(value: Any, replacement: Any, block: set[Any], graph: Any) -> None:
    """Whoever reads the value outside of the block reads the replacement."""
    for use in list(value.uses()):
        if use.node not in block:
            use.node.replace_input_with(use.idx, replacement)
    for place, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[place] = replacement


def _is_small(value: Any) -> bool:
    return value.is_initializer() and value.const_value is not None and value.const_value.size <= _SMALL


def _function(block: list[Any], passed: list[Any], fixed: set[Any], results: list[Any], opsets: Any) -> Any:
    """The nodes as a function of the values that come from outside; the constants among these stand in it."""
    import onnx_ir as ir

    nodes, arguments = [], []
    for number, value in enumerate(passed):
        arguments.append(ir.Value(name=f"argument_{number}", type=value.type))
        _read_inside(value, arguments[-1], block)
    for number, value in enumerate(sorted(fixed, key=lambda value: str(value.name))):
        constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)], num_outputs=1)
        constant.outputs[0].name = f"constant_{number}"
        _read_inside(value, constant.outputs[0], block)
        nodes.append(constant)
    graph = ir.Graph(arguments, results, nodes=[*nodes, *block], opset_imports={"": opsets[""]}, name=NAME)
    return ir.Function(DOMAIN, NAME, graph=graph, attributes=[])


def _read_inside(value: Any, replacement: Any, block: list[Any]) -> None:
    nodes = _all_nodes(block)
    for use in list(value.uses()):
        if use.node in nodes:
            use.node.replace_input_with(use.idx, replacement)
