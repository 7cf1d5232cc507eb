"""Level 1: one loop, one condition."""

from bamas_lite.generators.python_functions.family import (
    Family,
    choices,
    grid,
    integer,
    integers,
    letters,
    phrase,
    pick,
)

FAMILIES = (
    Family(
        "sum_of_multiples", "numbers", 1, grid(k=range(2, 13)),
        """returns the sum of the multiples of $k in the list `numbers`, counting each value once, however often it
        occurs. Negative multiples count too. Without any multiple the sum is 0.""",
        """
def sum_of_multiples(numbers):
    total = 0
    for value in set(numbers):
        if value % $k == 0:
            total += value
    return total
""",
        lambda p: [([],), ([p["k"], p["k"], p["k"] + 1],), ([-p["k"], 1, 0, -2 * p["k"]],)],
        lambda rng, p: ([pick(rng, (integer(rng, -20, 40), p["k"] * integer(rng, -2, 5))) for _ in range(7)],),
    ),
    Family(
        "rotate_list", "items", 1, grid(k=range(2, 11), side=choices(
            "side cut one", ("right", "-", "moves the last item to the front"),
            ("left", "", "moves the first item to the end"))),
        """returns a new list with the items of the list `items` rotated by $k to the $side: one step to the $side
        $one, and there are $k such steps. The list may have fewer than $k items; an empty list stays empty.""",
        """
def rotate_list(items):
    if not items:
        return []
    cut = $cut$k % len(items)
    return items[cut:] + items[:cut]
""",
        lambda p: [([],), ([4],), (list(range(1, p["k"] + 1)),), (list(range(1, p["k"] + 2)),)],
        lambda rng, p: (integers(rng, 0, 30, 2, p["k"] + 4),),
    ),
    Family(
        "count_words", "text", 1, grid(n=range(3, 8), how=choices(
            "how op", ("at least", ">="), ("at most", "<="), ("exactly", "=="))),
        """returns how many words of the string `text` have $how $n characters. Words are separated by one or more
        spaces; there may be spaces at the start or the end, or no word at all.""",
        """
def count_words(text):
    count = 0
    for word in text.split():
        if len(word) $op $n:
            count += 1
    return count
""",
        lambda p: [("",), ("   ",), ("  " + "  ".join("abcdefghij"[:m] for m in range(p["n"] - 1, p["n"] + 2)) + " ",)],
        lambda rng, p: (phrase(rng, 3, 7, p["n"] + 2),),
    ),
    Family(
        "clamp_values", "numbers", 1, grid(low=(-10, -4, 0, 3, 5), high=(8, 12, 20, 30)),
        """returns a new list in which every number of the list `numbers` that is below $low is replaced with $low, and
        every number above $high with $high. The other numbers stay as they are, and the order is kept.""",
        """
def clamp_values(numbers):
    result = []
    for value in numbers:
        if value < $low:
            result.append($low)
        elif value > $high:
            result.append($high)
        else:
            result.append(value)
    return result
""",
        lambda p: [([],), ([p["low"], p["low"] - 1, p["low"] + 1],), ([p["high"] + 1, p["high"], p["high"] - 1],)],
        lambda rng, p: (integers(rng, p["low"] - 6, p["high"] + 6, 4, 7),),
    ),
    Family(
        "every_nth", "items", 1, tuple(
            {"k": k, "s": s, "second": s + k, "third": s + 2 * k} for k in range(2, 6) for s in range(1, 5)),
        """returns a list of the items of the list `items` at the positions $s, $second, $third and so on (each $k
        further than the one before), where the first item has position 1.""",
        """
def every_nth(items):
    picked = []
    for position, item in enumerate(items, 1):
        if position >= $s and (position - $s) % $k == 0:
            picked.append(item)
    return picked
""",
        lambda p: [([],), (list(range(10, 10 + p["s"])),), (list(range(20, 19 + p["third"])),)],
        lambda rng, p: (integers(rng, 0, 30, p["s"] + p["k"], p["third"] + 3),),
    ),
    Family(
        "digit_powers", "n", 1, grid(
            power=choices("power p", ("squares", 2), ("cubes", 3), ("fourth powers", 4), ("fifth powers", 5)),
            which=choices("which test", ("odd", "digit % 2 == 1"), ("even", "digit % 2 == 0"),
                          ("greater than 4", "digit > 4"), ("less than 6", "digit < 6"))),
        """returns the sum of the $power of those decimal digits of the non-negative integer `n` that are $which. A
        digit that occurs several times counts each time; without such a digit the sum is 0.""",
        """
def digit_powers(n):
    total = 0
    for character in str(n):
        digit = int(character)
        if $test:
            total += digit ** $p
    return total
""",
        lambda p: [(0,), (7,), (4456,), (5501223,)],
        lambda rng, p: (integer(rng, 100, 99999),),
    ),
    Family(
        "count_in_range", "numbers", 1, grid(low=(-5, 0, 4), high=(9, 15, 20), where=choices(
            "first link second test", ("at least", "and", "less than", "$low <= value < $high"),
            ("greater than", "and", "at most", "$low < value <= $high"),
            ("less than", "or", "greater than", "value < $low or value > $high"))),
        """returns how many numbers of the list `numbers` are $first $low $link $second $high. Numbers that occur
        several times count each time.""",
        """
def count_in_range(numbers):
    count = 0
    for value in numbers:
        if $test:
            count += 1
    return count
""",
        lambda p: [([],), ([p["low"]] * 2,), ([p["high"], p["low"], p["high"], p["high"] + 1],),
                   ([p["low"] - 1, p["low"] - 2, p["low"], p["low"] + 1],)],
        lambda rng, p: (integers(rng, p["low"] - 8, p["high"] + 8, 5, 9),),
    ),
    Family(
        "mask_letters", "text", 1, grid(mark="*#-", group=choices(
            "listed group", ("a, e and i", "aei"), ("r, s and t", "rst"), ("o and u", "ou"), ("l, m and n", "lmn"),
            ("a, b and d", "abd"), ("e, k, n and t", "eknt"))),
        """returns the string `text` with each of the letters $listed, in upper or lower case, replaced with the
        character `$mark`. All other characters stay as they are.""",
        """
def mask_letters(text):
    result = ""
    for character in text:
        if character.lower() in "$group":
            result += "$mark"
        else:
            result += character
    return result
""",
        lambda p: [("",), (p["group"].upper() + "xyz",), ("AEIOU and BDKLMNRST!",)],
        lambda rng, p: (letters(rng, "aeioubdklmnrst" + p["group"].upper(), 5, 9) + pick(rng, "!? .") + p["group"][0],),
    ),
    Family(
        "ending_in", "numbers", 1, grid(
            digits=choices("d e", (0, 5), (1, 2), (3, 7), (4, 9), (6, 8), (2, 6)),
            order=choices("order result", ("in their original order", "found"),
                          ("in increasing order", "sorted(found)"))),
        """returns a list of those numbers in the list `numbers` (non-negative integers) whose last decimal digit is $d
        or $e, $order. A number that occurs several times is listed as often as it occurs.""",
        """
def ending_in(numbers):
    found = []
    for value in numbers:
        if value % 10 == $d or value % 10 == $e:
            found.append(value)
    return $result
""",
        lambda p: [([],), ([p["e"], p["d"], p["e"]],),
                   ([p["d"] * 10 + 11 - p["d"], 100 + p["e"], 20 + p["d"], p["d"]],)],
        lambda rng, p: ([10 * integer(rng, 0, 12) + pick(rng, (p["d"], p["e"], integer(rng, 0, 9)))
                         for _ in range(6)],),
    ),
    Family(
        "pad_number", "n", 1, grid(w=range(3, 8), fill="0_x", side=choices(
            "side put", ("left", '"$fill" + text'), ("right", 'text + "$fill"'))),
        """returns the non-negative integer `n` as a string of at least $w characters: its decimal digits, filled up on
        the $side with as many characters `$fill` as are needed. A number with more digits is not cut.""",
        """
def pad_number(n):
    text = str(n)
    while len(text) < $w:
        text = $put
    return text
""",
        lambda p: [(0,), (10 ** p["w"] - 1,), (10 ** p["w"],), (10 ** (p["w"] - 1) - 1,)],
        lambda rng, p: (integer(rng, 1, 10 ** integer(rng, 1, p["w"])),),
    ),
    Family(
        "signed_sum", "numbers", 1, grid(k=range(2, 8), start=choices(
            "start then first", ("adds", "subtracts", 0), ("subtracts", "adds", 1))),
        """starts at 0, $start the first $k numbers of the list `numbers`, $then the next $k, $start the $k after
        these, and so on in turn to the end of the list, and returns the result. The last group may be shorter than
        $k.""",
        """
def signed_sum(numbers):
    total = 0
    for index, value in enumerate(numbers):
        if index // $k % 2 == $first:
            total += value
        else:
            total -= value
    return total
""",
        lambda p: [([],), ([5],), ([1] * (2 * p["k"] + 1),), (list(range(1, p["k"] + 2)),)],
        lambda rng, p: (integers(rng, -5, 20, p["k"], 2 * p["k"] + 2),),
    ),
    Family(
        "join_words", "words", 1, grid(n=range(2, 6), sep=("-", "+", "/", "::")),
        """joins those strings of the list `words` that have at least $n characters, in their order, with `$sep`
        between neighbors, and returns the resulting string. If there is no such string it returns the empty
        string.""",
        """
def join_words(words):
    kept = []
    for word in words:
        if len(word) >= $n:
            kept.append(word)
    return "$sep".join(kept)
""",
        lambda p: [([],), (["a", ""],), (["abcdef"[:p["n"]], "abcdef"[:p["n"] - 1], "abcdefg"[:p["n"] + 1]],)],
        lambda rng, p: (phrase(rng, 3, 5, p["n"] + 2).split(),),
    ),
    Family(
        "ticket_price", "quantity", 1, grid(p=(9, 12, 20), q=(5, 7, 8), m=(3, 5, 10)),
        """returns the price of `quantity` tickets (a non-negative integer), where each of the first $m tickets costs
        $p and every further ticket costs $q.""",
        """
def ticket_price(quantity):
    full = min(quantity, $m)
    return full * $p + (quantity - full) * $q
""",
        lambda p: [(0,), (1,), (p["m"],), (p["m"] + 1,), (p["m"] - 1,)],
        lambda rng, p: (integer(rng, 2, 3 * p["m"]),),
    ),
    Family(
        "is_long_year", "year", 1, tuple({"a": a, "b": a * b, "c": a * b * c}
                                         for a in (3, 4, 5, 6, 7) for b in (5, 8, 10) for c in (3, 4)),
        """says whether a year is long in an invented calendar. A year is long if its number is divisible by $a; but if
        it is divisible by $b it is not long, unless it is also divisible by $c: then it is long after all. The
        function returns True or False for a positive integer `year`.""",
        """
def is_long_year(year):
    if year % $c == 0:
        return True
    if year % $b == 0:
        return False
    return year % $a == 0
""",
        lambda p: [(p["c"],), (p["b"],), (p["a"],), (p["a"] + 1,), (2 * p["b"],)],
        lambda rng, p: (pick(rng, (p["a"] * integer(rng, 1, 90), p["b"] * integer(rng, 1, 12), p["c"] * 2,
                                   integer(rng, 1, 400))),),
    ),
    Family(
        "call_out", "n", 1, grid(
            pair=choices("a b both", (2, 3, 6), (2, 5, 10), (3, 4, 12), (3, 5, 15), (2, 7, 14), (4, 5, 20)),
            words=choices("u v", ("tick", "tock"), ("red", "blue"), ("up", "down"))),
        """returns a list of `n` strings for the numbers from 1 to `n`: `$u` for a multiple of $a, `$v` for a multiple
        of $b, `$u$v` for a multiple of both, and otherwise the number in decimal digits. For `n` = 0 the list is
        empty.""",
        """
def call_out(n):
    result = []
    for number in range(1, n + 1):
        word = ""
        if number % $a == 0:
            word += "$u"
        if number % $b == 0:
            word += "$v"
        result.append(word or str(number))
    return result
""",
        lambda p: [(0,), (1,), (p["b"],), (p["both"],)],
        lambda rng, p: (integer(rng, 3, 12),),
    ),
    Family(
        "lagged_differences", "numbers", 1, grid(k=range(2, 7), how=choices(
            "how result", ("the number minus its partner", "numbers[i] - numbers[i - $k]"),
            ("the partner minus the number", "numbers[i - $k] - numbers[i]"),
            ("the absolute difference of the number and its partner", "abs(numbers[i] - numbers[i - $k])"))),
        """returns a list with one result for every number of the list `numbers` that has a partner, the number $k
        places before it: $how. Numbers without a partner are left out.""",
        """
def lagged_differences(numbers):
    result = []
    for i in range($k, len(numbers)):
        result.append($result)
    return result
""",
        lambda p: [([],), ([3] * p["k"],), ([9] + [2] * p["k"],)],
        lambda rng, p: (integers(rng, -5, 20, p["k"] + 2, p["k"] + 5),),
    ),
    Family(
        "find_index", "numbers", 1, grid(
            t=(-3, 0, 5, 10), how=choices("how op", ("greater", ">"), ("less", "<")),
            end=choices("end order", ("first", "range(len(numbers))"), ("last", "range(len(numbers) - 1, -1, -1)"))),
        """returns the index (from 0) of the $end number in the list `numbers` that is $how than $t, or -1 if there is
        none.""",
        """
def find_index(numbers):
    for index in $order:
        if numbers[index] $op $t:
            return index
    return -1
""",
        lambda p: [([],), ([p["t"]] * 3,), ([p["t"], p["t"] - 1, p["t"] + 1, p["t"] - 1, p["t"] + 1, p["t"]],),
                   ([p["t"] + 1],)],
        lambda rng, p: (integers(rng, p["t"] - 9, p["t"] + 9, 4, 7),),
    ),
    Family(
        "after_steps", "n", 1, grid(d=(2, 3), m=(2, 3, 5), c=(1, 2), s=(3, 4, 5)),
        """applies one rule $s times to the positive integer `n`, each time to the result before, and returns the last
        result. The rule: a number divisible by $d is divided by $d; any other number is multiplied by $m, and then $c
        is added.""",
        """
def after_steps(n):
    for _ in range($s):
        if n % $d == 0:
            n = n // $d
        else:
            n = $m * n + $c
    return n
""",
        lambda p: [(1,), (p["d"],), (p["d"] ** p["s"],)],
        lambda rng, p: (integer(rng, 2, 60),),
    ),
)
