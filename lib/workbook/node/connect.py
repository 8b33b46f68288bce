"""From a node's name to a connection."""

from workbook.catalog import load
from workbook.node.base import NodeConnection
from workbook.node.local import LocalConnection
from workbook.types import Node


def connect(name: str) -> NodeConnection:
    """Open the node described in data/nodes/NAME.yaml.

    Raises:
        UsageError: no such node, or its description is not valid.
    """
    return LocalConnection(load(Node, name))
