"""Modules as the messages of their files, which tests change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuronsim.hlo import fields, proto, wire
from neuronsim.hlo.module import Module


def message_of(module: Module) -> wire.Message:
    return wire.read_message(memoryview(proto.to_bytes(module)), fields.MODULE)


def bytes_of(message: Mapping[str, Any]) -> bytes:
    return wire.write_message(dict(message), fields.MODULE)


def reread(message: Mapping[str, Any]) -> Module:
    return proto.from_bytes(bytes_of(message))
