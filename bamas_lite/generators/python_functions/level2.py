"""Level 2: two or three ideas that have to work together."""

from itertools import combinations

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

_BRACKETS = ("()", "[]", "{}", "<>")


def _runs(rng, alphabet, count, longest):
    return "".join(pick(rng, alphabet) * integer(rng, 1, longest) for _ in range(count))


def _intervals(rng, gap):
    result, at = [], integer(rng, 0, 3)
    for _ in range(integer(rng, 3, 5)):
        end = at + integer(rng, 0, 4)
        result.append((at, end))
        at = end + integer(rng, max(gap - 2, -2), gap + 2)
    return [result[i] for i in rng.permutation(len(result))]


def _bracket_text(rng, pairs, depth=2):
    if depth == 0 or rng.random() < 0.2:
        return letters(rng, "abx", 0, 2)
    parts = []
    for _ in range(integer(rng, 1, 2)):
        left, right = pick(rng, pairs)
        parts.append(left + _bracket_text(rng, pairs, depth - 1) + right)
    return "".join(parts)


def _broken_bracket_text(rng, pairs):
    text = _bracket_text(rng, pairs) or pairs[0]
    other = pick(rng, [pair for pair in _BRACKETS if pair not in pairs])
    i, j = (integer(rng, 0, len(text) - 1) for _ in range(2))
    return pick(rng, (text, text, text[:i] + text[i + 1:], text[:i] + text[j] + text[i + 1:],
                      text[:i] + other[0] + text[i:], text[::-1]))


def _repeating(rng, distance):
    numbers = []
    for i in range(integer(rng, distance + 1, distance + 6)):
        back = pick(rng, (distance - 1, distance, distance + 1, distance + 2, 0, 0))
        numbers.append(numbers[i - back] if 0 < back <= i else integer(rng, 1, 9))
    return numbers


_PAIRS = [{"listed": " and ".join(", ".join(f"`{pair}`" for pair in some).rsplit(", ", 1)), "pairs": some,
           "closing": "{" + ", ".join(f'"{close}": "{opening}"' for opening, close in some) + "}",
           "opening": "".join(pair[0] for pair in some)}
          for size in (1, 2, 3) for some in combinations(_BRACKETS, size)]

_SYMBOLS = [{"values": values,
             "listed": ", ".join(f"`{s}` for {v}" for s, v in zip(symbols, values, strict=True)),
             "table": "(" + ", ".join(f'({v}, "{s}")' for s, v in zip(symbols, values, strict=True)) + ")"}
            for symbols, values in (
                ("GKT", (12, 4, 1)), ("GKT", (20, 5, 1)), ("XWI", (9, 3, 1)), ("XWI", (16, 4, 1)), ("PQR", (10, 6, 1)),
                ("PQR", (15, 7, 1)), ("LMNO", (30, 10, 5, 1)), ("LMNO", (24, 8, 2, 1)), ("ABCD", (18, 6, 3, 1)),
                ("ABCD", (40, 20, 4, 1)), ("HVZ", (14, 5, 1)), ("HVZ", (11, 3, 1)))]

FAMILIES = (
    Family(
        "longest_run", "numbers", 2, grid(d=range(1, 8), how=choices("how op", ("at most", "<="), ("at least", ">="))),
        """returns the length of the longest stretch of consecutive elements of the list `numbers` in which every two
        neighbors differ by $how $d (in absolute value). A single element is a stretch of length 1; the empty list
        gives 0.""",
        """
def longest_run(numbers):
    best = run = 0
    for i, value in enumerate(numbers):
        if i > 0 and abs(value - numbers[i - 1]) $op $d:
            run += 1
        else:
            run = 1
        best = max(best, run)
    return best
""",
        lambda p: [([],), ([8],), ([0, p["d"], 0, p["d"] + 1, 1],), ([5, 5 - p["d"] - 1, 5, 5 - p["d"], 5, 5],)],
        lambda rng, p: (integers(rng, 0, 2 * p["d"] + 2, 5, 9),),
    ),
    Family(
        "encode_runs", "text", 2, grid(m=range(2, 7), order=choices(
            "order code", ("the letter followed by the length of the run", "text[start] + str(length)"),
            ("the length of the run followed by the letter", "str(length) + text[start]"))),
        """shortens a string `text` of lower-case letters. A run is a longest possible stretch of equal letters. Each
        run of at least $m letters is written as $order (in decimal digits); shorter runs stay as they are. Returns the
        new string.""",
        """
def encode_runs(text):
    result = ""
    start = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or text[i] != text[start]:
            length = i - start
            if length >= $m:
                result += $code
            else:
                result += text[start:i]
            start = i
    return result
""",
        lambda p: [("",), ("z",), ("a" * p["m"] + "b" * (p["m"] - 1) + "a",), ("t" * 11 + "u" * (p["m"] + 1),)],
        lambda rng, p: (_runs(rng, "abc", 4, p["m"] + 2),),
    ),
    Family(
        "merge_intervals", "intervals", 2, grid(g=range(0, 10)),
        """merges intervals. `intervals` is a list of tuples (start, end) of integers with start <= end, in any order.
        Taken by increasing start, an interval is merged into the one before it if its start is at most $g greater than
        the largest end so far of that one (so overlapping intervals are always merged); the merged interval has the
        smallest start and the largest end. Returns the list of merged tuples (start, end) by increasing start.""",
        """
def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] <= $g:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
""",
        lambda p: [([],), ([(4, 4)],), ([(0, 9), (2, 3), (10 + p["g"], 12 + p["g"])],),
                   ([(20, 21), (3, 20 - p["g"])],)],
        lambda rng, p: (_intervals(rng, p["g"]),),
    ),
    Family(
        "shift_text", "text", 2, grid(k=range(2, 13), way=choices(
            "way sign", ("forward (after z comes a again)", "+"), ("backward (before a comes z again)", "-"))),
        """returns the string `text` with every letter of the English alphabet moved $k places $way. Upper-case letters
        stay upper-case, lower-case letters lower-case; all other characters stay as they are.""",
        """
def shift_text(text):
    result = ""
    for character in text:
        if "a" <= character <= "z":
            base = ord("a")
        elif "A" <= character <= "Z":
            base = ord("A")
        else:
            result += character
            continue
        result += chr((ord(character) - base $sign $k) % 26 + base)
    return result
""",
        lambda p: [("",), ("az AZ",), ("Zm-7, nA!",)],
        lambda rng, p: (letters(rng, "abmnyzABMNYZ", 3, 5) + pick(rng, " ,-") + letters(rng, "aglqzZ", 2, 4),),
    ),
    Family(
        "to_base", "n", 2, tuple(
            [{"b": b, "digits": "", "figure": f"str(n % {b})"} for b in range(3, 11)]
            + [{"b": b, "digits": " The digits are 0 to 9 and then "
                f"the {case} letters from {first} on, for 10, 11, and so on.",
                "figure": f'"0123456789{letters_}"[n % {b}]'} for b in range(11, 17)
               for case, first, letters_ in (("capital", "A", "ABCDEF"), ("small", "a", "abcdef"))]),
        """returns the non-negative integer `n` written in base $b, as a string without leading zeros.$digits 0 is
        written as "0".""",
        """
def to_base(n):
    if n == 0:
        return "0"
    text = ""
    while n > 0:
        text = $figure + text
        n = n // $b
    return text
""",
        lambda p: [(0,), (p["b"] - 1,), (p["b"],), (p["b"] ** 2 - 1,), (p["b"] ** 3 + 11 % p["b"],)],
        lambda rng, p: (integer(rng, 5, p["b"] ** 3),),
    ),
    Family(
        "split_by_remainder", "numbers", 2, grid(k=range(2, 8), order=choices(
            "order result", ("in their original order", "groups"),
            ("in increasing order", "[sorted(group) for group in groups]"),
            ("in decreasing order", "[sorted(group, reverse=True) for group in groups]"))),
        """returns a list of $k lists: the first holds the numbers of the list `numbers` (non-negative integers) that
        leave the remainder 0 when they are divided by $k, the next those that leave 1, and so on. Each inner list has
        its numbers $order, as often as they occur; it is empty if there are none.""",
        """
def split_by_remainder(numbers):
    groups = [[] for _ in range($k)]
    for value in numbers:
        groups[value % $k].append(value)
    return $result
""",
        lambda p: [([],), ([p["k"], 0, p["k"]],), ([2 * p["k"] - 1, p["k"] - 1, 3 * p["k"] - 1, p["k"]],)],
        lambda rng, p: (integers(rng, 0, 4 * p["k"], 5, 8),),
    ),
    Family(
        "top_words", "text", 2, grid(k=range(2, 7), ties=choices(
            "ties key", ("in alphabetical order", "(-counts[word], word)"),
            ("in the order in which they first occur in `text`", "-counts[word]"))),
        """returns a list of the $k words that occur most often in the string `text`, the most frequent first; words
        that occur equally often come $ties. Words are separated by spaces and compared in lower case, and the result
        has them in lower case. With fewer than $k different words, all are listed.""",
        """
def top_words(text):
    counts = {}
    for word in text.lower().split():
        counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: $key)
    return ranked[:$k]
""",
        lambda p: [("",), ("Go go GO stop",), ("f e d c b a g",), ("b a b a c d d D b e g h",)],
        lambda rng, p: (" ".join(pick(rng, ("sun", "sea", "Sea", "air", "oak", "ice", "Fog", "elm")) for _ in range(
            integer(rng, p["k"] + 3, 9))),),
    ),
    Family(
        "block_sums", "numbers", 2, grid(k=range(2, 8), rest=choices(
            "rest stop", ("If fewer than $k numbers remain at the end, their sum is listed too", "len(numbers)"),
            ("If fewer than $k numbers remain at the end, they are ignored", "len(numbers) - $k + 1"))),
        """splits the list `numbers` into blocks of $k consecutive numbers, from the start, and returns the list of the
        sums of the blocks. $rest. The empty list gives an empty list.""",
        """
def block_sums(numbers):
    sums = []
    for start in range(0, $stop, $k):
        sums.append(sum(numbers[start:start + $k]))
    return sums
""",
        lambda p: [([],), ([7] * (p["k"] - 1),), (list(range(1, 2 * p["k"] + 1)),), (list(range(3, 2 * p["k"] + 2)),)],
        lambda rng, p: (integers(rng, -5, 15, p["k"] + 1, 2 * p["k"] + 3),),
    ),
    Family(
        "ranked_value", "numbers", 2, grid(
            rank=choices("rank k", ("second", 2), ("third", 3), ("fourth", 4), ("fifth", 5), ("sixth", 6)),
            kind=choices("kind extra", ("largest", ", reverse=True"), ("smallest", ""))),
        """returns the $rank $kind of the different values in the list `numbers`; values that occur several times count
        once. If there are fewer than $k different values it returns None.""",
        """
def ranked_value(numbers):
    values = sorted(set(numbers)$extra)
    if len(values) < $k:
        return None
    return values[$k - 1]
""",
        lambda p: [([],), ([4] * p["k"],), (list(range(p["k"])),), (list(range(1, p["k"])),)],
        lambda rng, p: (integers(rng, -9, 12, p["k"] + 1, p["k"] + 4),),
    ),
    Family(
        "window_values", "numbers", 2, grid(w=range(2, 7), kind=choices(
            "kind result", ("the largest number", "max(window)"), ("the smallest number", "min(window)"),
            ("the largest minus the smallest number", "max(window) - min(window)"))),
        """looks at every window of $w consecutive numbers of the list `numbers`, from left to right, moving on by one
        number at a time, and returns the list of the results: $kind of each window. A list of fewer than $w numbers
        gives an empty list.""",
        """
def window_values(numbers):
    values = []
    for start in range(len(numbers) - $w + 1):
        window = numbers[start:start + $w]
        values.append($result)
    return values
""",
        lambda p: [([],), ([2] * (p["w"] - 1),), (list(range(p["w"])),), ([9, -1, 4, 3, 8, -2, 6, 5],)],
        lambda rng, p: (integers(rng, -9, 20, p["w"] + 1, p["w"] + 4),),
    ),
    Family(
        "brackets_match", "text", 2, tuple(_PAIRS),
        """says whether the brackets in the string `text` match: every opening bracket is closed by its partner, in the
        right order of nesting, and every closing bracket has its opening one before it. The pairs are $listed; all
        other characters, other kinds of brackets too, are ignored. Returns True or False; a text without brackets
        matches.""",
        """
def brackets_match(text):
    partner = $closing
    stack = []
    for character in text:
        if character in partner.values():
            stack.append(character)
        elif character in partner:
            if not stack or stack.pop() != partner[character]:
                return False
    return not stack
""",
        lambda p: [("",), ("".join("a" + pair[0] for pair in _BRACKETS if pair not in p["pairs"]),),
                   *((pair[1] + pair[0],) for pair in p["pairs"]), (p["pairs"][-1][0] * 2 + p["pairs"][-1][1],),
                   (p["pairs"][0][0] + p["pairs"][-1][0] + p["pairs"][0][1] + p["pairs"][-1][1],)],
        lambda rng, p: (_broken_bracket_text(rng, p["pairs"]),),
    ),
    Family(
        "to_symbols", "n", 2, tuple(_SYMBOLS),
        """writes a non-negative integer `n` in an invented numeral system with the symbols $listed. From the most
        valuable symbol to the least, each symbol is written as many times as its value still fits into what is left of
        `n`. Returns the string of symbols; 0 gives the empty string.""",
        """
def to_symbols(n):
    text = ""
    for value, symbol in $table:
        while n >= value:
            text += symbol
            n -= value
    return text
""",
        lambda p: [(0,), (p["values"][0],), (p["values"][0] - 1,), (2 * p["values"][0] + p["values"][1] + 1,)],
        lambda rng, p: (integer(rng, 4, 3 * p["values"][0]),),
    ),
    Family(
        "with_divisors", "limit", 2, grid(how=choices(
            "how d op", ("exactly", 2, "=="), ("exactly", 3, "=="), ("exactly", 4, "=="), ("exactly", 6, "=="),
            ("exactly", 8, "=="), ("at least", 4, ">="), ("at least", 5, ">="), ("at least", 6, ">="),
            ("at least", 8, ">="), ("at most", 2, "<="), ("at most", 3, "<="), ("at most", 4, "<="))),
        """returns the increasing list of all integers from 1 to `limit` (included) that have $how $d positive
        divisors, where 1 and the number itself are divisors too. If there are none, or `limit` is 0, the list is
        empty.""",
        """
def with_divisors(limit):
    found = []
    for number in range(1, limit + 1):
        divisors = 0
        for candidate in range(1, number + 1):
            if number % candidate == 0:
                divisors += 1
        if divisors $op $d:
            found.append(number)
    return found
""",
        lambda p: [(0,), (1,), (24,), (9,)],
        lambda rng, p: (integer(rng, 6, 14 + 6 * p["d"] if p["op"] != "<=" else 20),),
    ),
    Family(
        "valid_code", "text", 2, grid(n=(5, 6, 7, 8), d=(2, 3), marks=("-_", "!?", "#+")),
        """says whether the string `text` (of ASCII characters) is a valid code: it has at least $n characters, starts
        with a letter, holds at least $d decimal digits, and holds at least one of the characters `$marks`. Returns
        True or False.""",
        """
def valid_code(text):
    if len(text) < $n or not text[0].isalpha():
        return False
    digits = 0
    marked = False
    for character in text:
        if character.isdigit():
            digits += 1
        if character in "$marks":
            marked = True
    return digits >= $d and marked
""",
        lambda p: [("",), ("a" * (p["n"] - p["d"] - 1) + p["marks"][1] + "7" * p["d"],),
                   ("b" * (p["n"] - p["d"] - 2) + p["marks"][0] + "1" * p["d"],),
                   ("k" * p["n"] + p["marks"][0] + "4" * (p["d"] - 1),),
                   ("5" * p["d"] + "xyz" + p["marks"] + "st",), ("Q" * (p["n"] - p["d"]) + "12.345",)],
        lambda rng, p: ("".join((letters(rng, "akZ3", 1, 1), letters(rng, "abM07", 1, p["n"] - 4), letters(
            rng, p["marks"] + ".a", 1, 1), letters(rng, "0123456x", p["d"] - 1, p["d"] + 2))),),
    ),
    Family(
        "interleave", "first, second", 2, grid(x=range(1, 5), y=range(1, 5)),
        """builds a new list from the lists `first` and `second`: the next $x of `first`, then the next $y of `second`,
        and so on in turn until both are used up. Where a list has fewer items left than its turn allows, it gives what
        it has left, and nothing once it is used up. Returns the new list.""",
        """
def interleave(first, second):
    result = []
    i = j = 0
    while i < len(first) or j < len(second):
        result += first[i:i + $x]
        result += second[j:j + $y]
        i += $x
        j += $y
    return result
""",
        lambda p: [([], []), ([1, 2, 3, 4, 5, 6, 7], []), ([], [1, 2]), ([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12])],
        lambda rng, p: (integers(rng, 1, 9, 2, 6), integers(rng, 10, 30, 2, 6)),
    ),
    Family(
        "check_digit", "digits", 2, grid(m=(7, 9, 10, 11), weights=((1, 3), (2, 1), (3, 7, 1), (2, 3, 5))),
        """computes a check number of a string `digits` of decimal digits. The digits, from left to right, are
        multiplied by the weights $weights, which are repeated from the start as often as needed; the result is the sum
        of these products, and the function returns the remainder of this sum when it is divided by $m. The empty
        string gives 0.""",
        """
def check_digit(digits):
    weights = $weights
    total = 0
    for position, digit in enumerate(digits):
        total += int(digit) * weights[position % len(weights)]
    return total % $m
""",
        lambda p: [("",), ("9",), ("0000",), ("999999",)],
        lambda rng, p: (letters(rng, "0123456789", 4, 8),),
    ),
    Family(
        "wrap_text", "text", 2, grid(w=range(8, 19)),
        """breaks the string `text` into lines and returns the list of the lines. Words are separated by spaces. Each
        word is put, after one space, onto the current line if that line then has at most $w characters; otherwise it
        starts a new line. A word of more than $w characters is not broken and has a line of its own. A text without
        words gives an empty list.""",
        """
def wrap_text(text):
    lines = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= $w:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
""",
        lambda p: [("",), ("a" * (p["w"] + 2) + " b c",), ("abc " + "d" * (p["w"] - 4) + " e",),
                   ("abc " + "d" * (p["w"] - 3),)],
        lambda rng, p: (phrase(rng, 5, 8, 7),),
    ),
    Family(
        "repeats_nearby", "numbers", 2, grid(k=range(2, 8), how=choices(
            "how test", ("at most", "numbers[i] in numbers[max(0, i - $k):i]"),
            ("exactly", "i >= $k and numbers[i] == numbers[i - $k]"))),
        """returns the list of all indices i (from 0, increasing) at which the list `numbers` repeats an earlier value
        that stands $how $k places before: `numbers[i] == numbers[j]` for some j < i with i - j $how $k.""",
        """
def repeats_nearby(numbers):
    found = []
    for i in range(len(numbers)):
        if $test:
            found.append(i)
    return found
""",
        lambda p: [([],), ([6] * (p["k"] + 2),), ([1] + [2, 3, 4, 5, 6, 7][:p["k"] - 1] + [1],),
                   ([1] + [2, 3, 4, 5, 6, 7][:p["k"]] + [1],)],
        lambda rng, p: (_repeating(rng, p["k"]),),
    ),
)
