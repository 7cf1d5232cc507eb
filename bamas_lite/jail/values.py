"""Plain data as JSON and back: the only thing that leaves the sandbox."""

import array
import collections
import datetime
import decimal
import enum
import fractions
import json

PREFIX_BYTES = 1 << 16
"""An iterator that has more items than are asked for is read no further than this."""
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
TEXTS = {"decimal": (decimal.Decimal, decimal.Decimal), "date": (datetime.date, datetime.date.fromisoformat),
         "datetime": (datetime.datetime, datetime.datetime.fromisoformat),
         "time": (datetime.time, datetime.time.fromisoformat)}
DICTS = {"Counter": collections.Counter, "OrderedDict": collections.OrderedDict}


class Opaque(TypeError):
    """A value that is no plain data; the message is its type."""


def encode(value, classes=(), most=100, depth=0):
    """A JSON form of plain data, by exact base types, so that no `__eq__` of the program takes part in a comparison.

    Args:
        value: plain data, or an object of a class with a name in `classes`, of which the attributes are taken.
        classes: names of classes which the other side knows.
        most: items that are read of an iterator; one that has more becomes a "prefix".
        depth: how deep inside another value it is.
    """
    def inner(item):
        return encode(item, classes, most, depth + 1)

    if depth > 60:
        raise Opaque("deeply nested " + type(value).__name__)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, enum.Enum) and type(value).__name__ in classes:
        return ["member", type(value).__name__, inner(value.value)]
    if isinstance(value, int):
        number = int.__int__(value)
        return number if -1 << 53 < number < 1 << 53 else ["int", hex(number)]
    if isinstance(value, float):
        return ["float", float.hex(float.__float__(value))]
    if isinstance(value, complex):
        return ["complex", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        kind = next((kind for kind, base in DICTS.items() if type(value) is base), "dict")
        return [kind, [[inner(k), inner(v)] for k, v in dict.items(value)]]
    for kind, base in CONTAINERS.items():
        if isinstance(value, base):
            items = [inner(item) for item in base.__iter__(value)]
            return [kind, sorted(items, key=json.dumps) if "set" in kind else items]
    if isinstance(value, range):
        return ["range", hex(value.start), hex(value.stop), hex(value.step)]
    if type(value) is fractions.Fraction:
        return ["fraction", hex(value.numerator), hex(value.denominator)]
    if type(value) is datetime.timedelta:
        return ["timedelta", value.days, value.seconds, value.microseconds]
    if type(value) is array.array:
        return ["array", value.typecode, inner(value.tolist())]
    for kind, (base, _) in TEXTS.items():
        if type(value) is base:
            return [kind, str(value)]
    if type(value).__name__ in classes:
        attributes = {name: getattr(value, name) for kind in type(value).__mro__
                      for name in vars(kind).get("__slots__", ()) if hasattr(value, name)}
        return ["object", type(value).__name__, inner(attributes | getattr(value, "__dict__", {}))]
    if hasattr(type(value), "__next__") or isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        items, room = [], PREFIX_BYTES if most <= 100 else most * 100
        for item in value:
            if len(items) >= most or room < 0:
                return ["prefix", items]
            items.append(inner(item))
            room -= len(json.dumps(items[-1]))
        return ["iterator", items]
    raise Opaque(type(value).__name__)


def _started(items):
    """The items that were read of a longer iterator."""
    yield from items
    raise ValueError(f"the iterator goes on after the {len(items)} items that were read")


def decode(form, classes=None):
    """Plain data from its JSON form; objects get the classes of that name in `classes`."""
    def inner(item):
        return decode(item, classes)

    if not isinstance(form, list):
        return form
    kind, *rest = form
    if kind == "int":
        return int(rest[0], 16)
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "complex":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind in CONTAINERS:
        return CONTAINERS[kind](map(inner, rest[0]))
    if kind == "dict" or kind in DICTS:
        return DICTS.get(kind, dict)({inner(key): inner(value) for key, value in rest[0]})
    if kind == "range":
        return range(*(int(number, 16) for number in rest))
    if kind == "fraction":
        return fractions.Fraction(int(rest[0], 16), int(rest[1], 16))
    if kind == "timedelta":
        return datetime.timedelta(*rest)
    if kind == "array":
        return array.array(rest[0], inner(rest[1]))
    if kind == "iterator":
        return iter([inner(item) for item in rest[0]])
    if kind == "prefix":
        return _started([inner(item) for item in rest[0]])
    if kind in TEXTS:
        return TEXTS[kind][1](rest[0])
    if kind == "member":
        return classes[rest[0]](inner(rest[1]))
    if kind == "object":
        value = object.__new__(classes[rest[0]])
        for name, attribute in inner(rest[1]).items():
            object.__setattr__(value, name, attribute)
        return value
    raise ValueError("unknown form")
