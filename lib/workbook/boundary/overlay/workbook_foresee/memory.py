"""How much memory the tensors of a traced graph take while it runs."""


def peak_bytes(graph) -> int:
    """The largest sum of tensors alive at once, inputs and parameters left out, at the sizes of the trace.

    A tensor lives from the node that makes it to the last node that uses it or a view of it.
    """
    nodes = list(graph.graph.nodes)
    last_use = {used: place for place, node in enumerate(nodes) for used in node.all_input_nodes}
    born: dict[int, tuple[int, int]] = {}  # storage -> (bytes, place)
    dies: dict[int, int] = {}
    for place, node in enumerate(nodes):
        for tensor in tensors(node.meta.get("example_value")):
            key = tensor.untyped_storage()._cdata
            dies[key] = max(dies.get(key, 0), last_use.get(node, place))
            if key not in born:
                born[key] = (0 if node.op in ("placeholder", "get_attr") else size(tensor), place)
    changes = [0] * (len(nodes) + 2)
    for key, (count, place) in born.items():
        changes[place] += count
        changes[dies[key] + 1] -= count
    alive = largest = 0
    for change in changes:
        alive += change
        largest = max(largest, alive)
    return largest


def tensors(value):
    """The tensors in a node's value."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for one in value for tensor in tensors(one)]
    return []


def size(tensor) -> int:
    """Bytes of a tensor, symbolic sizes at the value they were traced with."""
    count = tensor.element_size()
    for length in tensor.shape:
        count *= length if isinstance(length, int) else int(length.node.hint or 0)
    return count
