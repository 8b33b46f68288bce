"""From a node's name to a connection."""

from workbook.catalog import load
from workbook.node.base import NodeConnection
from workbook.node.local import LocalConnection
from workbook.node.ssh import SshConnection
from workbook.types import Node

_over_ssh: dict[str, SshConnection] = {}


def connect(name: str) -> NodeConnection:
    """Open the node described in data/nodes/NAME.yaml; one behind ssh is connected to once, when it is first used.

    Raises:
        UsageError: no such node, or its description is not valid.
    """
    node = load(Node, name)
    if node.kind == "local":
        return LocalConnection(node)
    return _over_ssh.setdefault(node.model_dump_json(), SshConnection(node))
