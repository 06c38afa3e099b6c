"""A failure as the Java object that Flink's own client reads: an `org.apache.flink.util.SerializedThrowable`.

Without this object the client treats the answer of a failed operation as damaged. It repeats the request for most of a
minute and then reports no cause. The format is the Java Object Serialization Stream Protocol (version 5). A class
description names each class's fields, then their values follow, superclass first. A value that appeared before is a
reference to it.
"""

from __future__ import annotations

import base64
import struct

_MAGIC = struct.pack(">HH", 0xACED, 5)
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _END, _LONG_STRING = b"p", b"q", b"r", b"s", b"t", b"x", b"|"
_FIRST_HANDLE = 0x7E0000
_SERIALIZABLE, _WITH_OWN_WRITER = 2, 1
# The handle of the type name "Ljava/lang/String;", which is the second one after the first class description.
_STRING_TYPE_HANDLE = _FIRST_HANDLE + 1
_LONGEST_SHORT_STRING = 0xFFFF


def java_failure(class_name: str, message: str, stack_trace: str) -> dict[str, str]:
    """Return Flink's JSON of a failure: as text for people, and as the Java object."""
    java_object = base64.b64encode(serialized_throwable(class_name, message, stack_trace)).decode()
    return {"class": class_name, "stack-trace": stack_trace, "serialized-throwable": java_object}


def serialized_throwable(class_name: str, message: str, stack_trace: str) -> bytes:
    """Return the serialized object. The client prints `stack_trace`; the object has no cause and no Java frames."""
    throwable_fields = _NULL + _string(f"{class_name}: {message}") + _NULL + _NULL
    own_fields = _string(stack_trace) + _string(class_name) + _NULL
    return _MAGIC + _OBJECT + _descriptions() + throwable_fields + _END + own_fields


def _descriptions() -> bytes:
    """Return the descriptions of SerializedThrowable, Exception and Throwable. The numbers are Java's and Flink's."""
    string_again = _REFERENCE + struct.pack(">I", _STRING_TYPE_HANDLE)
    return (
        _class("org.apache.flink.util.SerializedThrowable", 0x65169DF51FA713F3, _SERIALIZABLE, 3)
        + _field("L", "fullStringifiedStackTrace", _string("Ljava/lang/String;"))
        + _field("L", "originalErrorClassName", string_again)
        + _field("[", "serializedException", _string("[B"))
        + _END
        + _class("java.lang.Exception", 0xD0FD1F3E1A3B1CC4, _SERIALIZABLE, 0)
        + _END
        + _class("java.lang.Throwable", 0xD5C635273977B8CB, _SERIALIZABLE | _WITH_OWN_WRITER, 4)
        + _field("L", "cause", _string("Ljava/lang/Throwable;"))
        + _field("L", "detailMessage", string_again)
        + _field("[", "stackTrace", _string("[Ljava/lang/StackTraceElement;"))
        + _field("L", "suppressedExceptions", _string("Ljava/util/List;"))
        + _END
        + _NULL
    )


def _class(name: str, version: int, flags: int, fields: int) -> bytes:
    return _CLASS + _short_utf(name) + struct.pack(">QBH", version, flags, fields)


def _field(kind: str, name: str, type_name: bytes) -> bytes:
    return kind.encode() + _short_utf(name) + type_name


def _string(text: str) -> bytes:
    encoded = _modified_utf8(text)
    if len(encoded) <= _LONGEST_SHORT_STRING:
        return _STRING + struct.pack(">H", len(encoded)) + encoded
    return _LONG_STRING + struct.pack(">Q", len(encoded)) + encoded


def _short_utf(text: str) -> bytes:
    encoded = _modified_utf8(text)
    return struct.pack(">H", len(encoded)) + encoded


def _modified_utf8(text: str) -> bytes:
    """Return Java's modified UTF-8: each UTF-16 unit separately in up to three bytes, and the character 0 in two."""
    units = text.encode("utf-16-be", "surrogatepass")
    encoded = bytearray()
    for (unit,) in struct.iter_unpack(">H", units):
        if 0 < unit < 0x80:
            encoded.append(unit)
        elif unit < 0x800:
            encoded += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            encoded += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(encoded)
