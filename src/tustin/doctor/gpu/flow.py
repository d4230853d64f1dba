"""The loops of compiled code: which instructions can come again after themselves.

A loop is a strongly connected part of the flow graph: from each of its instructions every other can be reached. Code
between two loops belongs to neither, wherever the compiler has put it. What is still strongly connected inside a loop
once the way back to its entry is cut is a loop inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def innermost_loops(successors: Sequence[Collection[int]]) -> list[int | None]:
    """The innermost loop of each node, None where there is none.

    Loops are counted as they stand in the code, by their first node, an outer one before those inside it. A node that
    leads to itself alone is none: code that has ended waits in one.

    Args:
        successors: Where each node leads to.
    """
    loops: list[set[int]] = []
    _collect(set(range(len(successors))), successors, loops)
    loops.sort(key=lambda loop: (min(loop), -len(loop)))
    found: list[int | None] = [None] * len(successors)
    for number, loop in enumerate(loops):  # an inner one later, so that it prevails
        for node in loop:
            found[node] = number
    return found


def _collect(nodes: set[int], successors: Sequence[Collection[int]], loops: list[set[int]]) -> None:
    """Append every loop within `nodes`, and those inside each."""
    for part in _strongly_connected(nodes, successors):
        if len(part) == 1:
            continue
        loops.append(part)
        entries = {target for node in nodes - part for target in successors[node] if target in part}
        _collect(part - {min(entries, default=min(part))}, successors, loops)


def _strongly_connected(nodes: set[int], successors: Sequence[Collection[int]]) -> list[set[int]]:
    """The strongly connected parts of the graph of these nodes, by Kosaraju's two walks; no recursion: code is long."""
    predecessors: dict[int, list[int]] = {node: [] for node in nodes}
    for node in nodes:
        for target in successors[node]:
            if target in nodes:
                predecessors[target].append(node)
    finished: list[int] = []
    seen: set[int] = set()
    for start in sorted(nodes):
        stack = [] if start in seen else [(start, iter(sorted(successors[start])))]
        seen.add(start)
        while stack:
            node, targets = stack[-1]
            new = next((target for target in targets if target in nodes and target not in seen), None)
            if new is None:
                finished.append(stack.pop()[0])
            else:
                seen.add(new)
                stack.append((new, iter(sorted(successors[new]))))
    parts: list[set[int]] = []
    left = set(nodes)
    for start in reversed(finished):
        if start not in left:
            continue
        left.discard(start)
        part, frontier = {start}, [start]
        while frontier:
            others = [node for node in predecessors[frontier.pop()] if node in left]
            left.difference_update(others)
            part.update(others)
            frontier += others
        parts.append(part)
    return parts
