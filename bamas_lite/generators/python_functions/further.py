"""Families of all levels that join in the dealing later, so that larger sets do not change what smaller ones hold."""

from bamas_lite.generators.python_functions.family import (
    Family,
    choices,
    grid,
    integer,
    integers,
    letters,
    pick,
)

_MOVES = [{"listed": listed, "moves": moves} for listed, moves in (
    ("the same column, the next column to the left or the next to the right", (-1, 0, 1)),
    ("the next column to the left or the next to the right", (-1, 1)),
    ("the same column or the next column to the right", (0, 1)),
    ("the same column or the next column to the left", (-1, 0)),
    ("the same column, or the second column to the left or to the right", (-2, 0, 2)),
    ("the next column to the left or the second column to the right", (-1, 2)))]

def _needs(rng, count):
    """Jobs with names in random order, each of which needs up to two others, seldom in a circle."""
    names = [pick(rng, "abcdefgh") + str(i) for i in range(count)]
    jobs = []
    for i, name in enumerate(names):
        pool = names if rng.random() < 0.1 else names[:i]
        jobs.append((name, sorted({pick(rng, pool) for _ in range(integer(rng, 0, 2))} - {name}) if pool else []))
    return [jobs[i] for i in rng.permutation(count)]


def _rows(rng, rows, cols):
    return [[integer(rng, -9, 20) for _ in range(cols)] for _ in range(rows)]


FAMILIES = (
    # ------------------------------------------------------------------ level 1
    Family(
        "replace_every", "items", 1, grid(k=range(2, 6), v=(0, -1, 99), end=choices(
            "end position", ("start", "index + 1"), ("end", "len(items) - index"))),
        """returns a new list with the items of the list `items`, in which every item whose position, counted from the
        $end of the list with 1 for the item there, is a multiple of $k is replaced with $v.""",
        """
def replace_every(items):
    result = []
    for index, item in enumerate(items):
        if ($position) % $k == 0:
            result.append($v)
        else:
            result.append(item)
    return result
""",
        lambda p: [([],), ([7] * (p["k"] - 1),), (list(range(11, 11 + p["k"])),), (list(range(21, 22 + 2 * p["k"])),)],
        lambda rng, p: (integers(rng, 1, 30, p["k"], 2 * p["k"] + 3),),
    ),
    Family(
        "walk_within", "moves", 1, grid(m=(5, 8, 12), a=(1, 2, 3), b=(1, 2, 4)),
        """follows a counter that starts at 0 through the characters of the string `moves`: `+` adds $a to it, `-`
        subtracts $b, and any other character leaves it as it is. After each character a counter below 0 is set to 0
        and a counter above $m is set to $m. Returns the counter at the end.""",
        """
def walk_within(moves):
    counter = 0
    for move in moves:
        if move == "+":
            counter += $a
        elif move == "-":
            counter -= $b
        counter = max(0, min($m, counter))
    return counter
""",
        lambda p: [("",), ("-+",), ("+" * (p["m"] + 1),), ("+" * (p["m"] + 1) + "-",), ("++?-.+",)],
        lambda rng, p: (letters(rng, "+++--.", 4, 6 + p["m"] // p["a"]),),
    ),
    # ------------------------------------------------------------------ level 2
    Family(
        "tally_buckets", "numbers", 2, grid(w=(2, 3, 4, 5), n=(3, 4, 5), rest=choices(
            "rest bucket", ("are left out", "value // $w"),
            ("count in the last bucket", "min(value // $w, $n - 1)"))),
        """counts the numbers of the list `numbers` (non-negative integers) in $n buckets: the first for the numbers
        from 0 to less than $w, each further bucket for the next $w numbers. Numbers beyond the last bucket $rest.
        Returns the list of the $n counts.""",
        """
def tally_buckets(numbers):
    counts = [0] * $n
    for value in numbers:
        bucket = $bucket
        if bucket < $n:
            counts[bucket] += 1
    return counts
""",
        lambda p: [([],), ([p["w"], p["w"] - 1, 0],), ([p["w"] * p["n"], p["w"] * p["n"] - 1],),
                   ([p["w"] * p["n"] * 3, p["w"] * (p["n"] - 1)],)],
        lambda rng, p: (integers(rng, 0, p["w"] * p["n"] + 2, 6, 10),),
    ),
    Family(
        "parcel_loads", "weights", 2, grid(cap=(8, 10, 12, 15), m=(2, 3, 4), result=choices(
            "listed result", ("the total weights of the boxes", "loads"),
            ("the numbers of parcels in the boxes", "counts"))),
        """packs parcels with the weights in the list `weights` (positive integers) into boxes, in the order of the
        list. A parcel goes into the current box if the box then has at most $m parcels and a total weight of at most
        $cap; otherwise a new box is begun with it, however heavy it is. Returns the list of $listed, in the order in
        which the boxes were begun.""",
        """
def parcel_loads(weights):
    loads, counts = [], []
    for weight in weights:
        if loads and counts[-1] < $m and loads[-1] + weight <= $cap:
            loads[-1] += weight
            counts[-1] += 1
        else:
            loads.append(weight)
            counts.append(1)
    return $result
""",
        lambda p: [([],), ([1] * (p["m"] + 1),), ([p["cap"] + 2, 1],), ([p["cap"] - 1, 1, 1],), ([p["cap"] - 1, 2],)],
        lambda rng, p: (integers(rng, 1, p["cap"] // 2 + 1, 5, 9),),
    ),
    Family(
        "first_of_each", "codes", 2, grid(k=(2, 3, 4, 5), group=choices(
            "group key", ("with the same first character", "code[0]"), ("with the same last character", "code[-1]"),
            ("of the same length", "len(code)")), order=choices(
            "order sign", ("shortest", "len(code)"), ("longest", "-len(code)"))),
        """looks at the list `codes` of non-empty strings of lower-case letters, the $order first and, of equally long
        ones, in alphabetical order. Of all codes $group only the first $k in this order are kept; codes that occur
        several times count as often as they occur. Returns the list of the codes kept, in this order.""",
        """
def first_of_each(codes):
    kept = []
    taken = {}
    for code in sorted(codes, key=lambda code: ($sign, code)):
        group = $key
        if taken.get(group, 0) < $k:
            kept.append(code)
            taken[group] = taken.get(group, 0) + 1
    return kept
""",
        lambda p: [([],), (["b"] * (p["k"] + 1),), (["c", "ab", "b", "abc", "bb", "a", "ba", "e", "d", "f"],),
                   (["abcdef"[:n] for n in (2, 6, 1, 5, 3, 4)] + ["fedcba"[n:] for n in range(6)],)],
        lambda rng, p: ([letters(rng, "abc", 1, 3) for _ in range(integer(rng, 2 * p["k"], 2 * p["k"] + 4))],),
    ),
    Family(
        "deal_cards", "cards", 2, grid(k=range(2, 6), c=(1, 2, 3), who=choices(
            "who seat", ("first", "0"), ("last", "$k - 1"))),
        """deals the items of the list `cards`, from its start, to $k players in turn, $c to each player at a time (the
        last one who gets any may get fewer), until none is left. Returns the list of the items that the $who player
        gets, in the order of dealing.""",
        """
def deal_cards(cards):
    hand = []
    for position, card in enumerate(cards):
        if position // $c % $k == $seat:
            hand.append(card)
    return hand
""",
        lambda p: [([],), ([5],), (list(range(1, p["k"] * p["c"] + 1)),), (list(range(30, 31 + 2 * p["k"] * p["c"])),)],
        lambda rng, p: (integers(rng, 1, 40, p["k"] * p["c"], 2 * p["k"] * p["c"] + 2),),
    ),
    Family(
        "count_pairs", "numbers", 2, grid(k=(3, 4, 5, 7), r=(0, 1, 2), d=(2, 3)),
        """returns the number of pairs of indices i < j of the list `numbers` (non-negative integers) with j - i at
        most $d for which the sum `numbers[i] + numbers[j]` leaves the remainder $r when it is divided by $k.""",
        """
def count_pairs(numbers):
    count = 0
    for j in range(len(numbers)):
        for i in range(max(0, j - $d), j):
            if (numbers[i] + numbers[j]) % $k == $r:
                count += 1
    return count
""",
        lambda p: [([],), ([p["r"]],), ([p["r"], 0, 0, 0, 0],), ([p["k"] + p["r"], p["k"], p["k"] + 1, 0],)],
        lambda rng, p: (integers(rng, 0, 2 * p["k"], 6, 9),),
    ),
    # ------------------------------------------------------------------ level 3
    Family(
        "best_descent", "matrix", 3, grid(move=_MOVES, aim=choices(
            "aim better", ("greatest", "max"), ("least", "min")), start=choices(
            "start columns", ("any column", "range(len(matrix[0]))"), ("the first column", "[0]"))),
        """returns the $aim sum of numbers on a way down through `matrix`, a list of at least one row of integers, all
        rows of the same length of at least one. A way begins in $start of the top row and has one number in each row:
        from its column it goes down to the next row in $listed, as far as there are such columns. If there is no way
        to the bottom row the function returns None.""",
        """
def best_descent(matrix):
    sums = {}
    for column in $columns:
        sums[column] = matrix[0][column]
    for row in matrix[1:]:
        below = {}
        for column, total in sums.items():
            for move in $moves:
                to = column + move
                if 0 <= to < len(row):
                    below[to] = $better(below.get(to, total + row[to]), total + row[to])
        sums = below
    return $better(sums.values(), default=None)
""",
        lambda p: [([[4]],), ([[3], [5]],), ([[1, 9, 2, 8]],), ([[1, 5, 2], [7, -3, 4], [0, 6, -9], [2, 2, 8]],)],
        lambda rng, p: (_rows(rng, integer(rng, 3, 4), integer(rng, 3, 5)),),
    ),
    Family(
        "fewest_pours", "goal", 3, grid(sizes=choices(
            "a b", (3, 5), (4, 7), (5, 8), (4, 9), (3, 7), (5, 7), (5, 6), (7, 10), (5, 9), (3, 8), (4, 11), (7, 9)),
            where=choices("where test", ("in either jar", "goal in (x, y)"), ("in the larger jar", "goal == y"))),
        """measures water with two jars that hold $a and $b liters and are empty at first. One step fills a jar to the
        brim, empties a jar, or pours from one jar into the other until the one is empty or the other is full. Returns
        the least number of steps after which there are exactly `goal` liters (a non-negative integer) $where, or -1
        if that cannot be reached.""",
        """
def fewest_pours(goal):
    steps = {(0, 0): 0}
    queue = [(0, 0)]
    for x, y in queue:
        if $test:
            return steps[x, y]
        right = min(x, $b - y)
        left = min(y, $a - x)
        for jars in (($a, y), (x, $b), (0, y), (x, 0), (x - right, y + right), (x + left, y - left)):
            if jars not in steps:
                steps[jars] = steps[x, y] + 1
                queue.append(jars)
    return -1
""",
        lambda p: [(0,), (p["a"],), (p["b"] + 1,), (p["b"] - p["a"],)],
        lambda rng, p: (integer(rng, 1, p["b"] + 2),),
    ),
    Family(
        "job_rounds", "jobs", 3, grid(k=range(1, 5), choice=choices(
            "choice order", ("that stand first in `jobs`", "ready"),
            ("that stand last in `jobs`, the last one first", "ready[::-1]"),
            ("whose names come first in alphabetical order", "sorted(ready)"),
            ("whose names come last in alphabetical order, the last one first", "sorted(ready, reverse=True)"),
            ("that need the most other jobs (of equals, those that stand first in `jobs`)",
             "sorted(ready, key=lambda name: -len(needs[name]))"),
            ("that need the fewest other jobs (of equals, those that stand first in `jobs`)",
             "sorted(ready, key=lambda name: len(needs[name]))"))),
        """does jobs in rounds. `jobs` is a list of tuples (name, needed), where `needed` is the list of the names of
        the jobs that must be done before; names differ. A job is ready if it is not done and all that it needs was
        done in earlier rounds. In each round at most $k of the ready jobs are done: those $choice. It ends when no
        job is ready; jobs that wait for each other are then left over. Returns the list of the names of the jobs that
        are done, round by round, within a round in the order of choice.""",
        """
def job_rounds(jobs):
    needs = dict(jobs)
    done = []
    for _ in jobs:
        ready = []
        for name in needs:
            if name not in done and set(needs[name]) <= set(done):
                ready.append(name)
        done += $order[:$k]
    return done
""",
        lambda p: [([],), ([("b", ["a"]), ("a", ["b"])],),
                   ([*((name, []) for name in "dfbeac"), ("x", ["a", "b"]), ("y", ["c"]), ("z", ["a", "b", "c"]),
                     ("w", ["d"]), ("v", ["e", "f"])],),
                   ([("d", ["b", "c"]), ("c", []), ("b", ["c"]), ("a", []), ("e", ["a"])],)],
        lambda rng, p: (_needs(rng, integer(rng, 4, 7)),),
    ),
    Family(
        "best_cut", "numbers", 3, grid(k=range(2, 6), aim=choices(
            "aim worst better none", ("the largest of these values is as small as possible", "max", "min", "10**9"),
            ("the smallest of these values is as large as possible", "min", "max", "-1")), value=choices(
            "value measure", ("the sum of its numbers", "sum(part)"),
            ("its largest number times its length", "max(part) * len(part)"),
            ("the sum of its first and its last number", "part[0] + part[-1]"))),
        """cuts the list `numbers` (non-negative integers below 100) into exactly $k stretches of consecutive numbers,
        each of at least one. The value of a stretch is $value. The list is cut such that $aim; the function returns
        that value. If the list has fewer than $k numbers it returns None.""",
        """
def best_cut(numbers):
    if len(numbers) < $k:
        return None
    best = []
    for end in range(1, len(numbers) + 1):
        part = numbers[:end]
        best.append($measure)
    for cuts in range(1, $k):
        further = [$none] * len(numbers)
        for end in range(cuts + 1, len(numbers) + 1):
            for start in range(cuts, end):
                part = numbers[start:end]
                value = $worst(best[start - 1], $measure)
                further[end - 1] = $better(further[end - 1], value)
        best = further
    return best[-1]
""",
        lambda p: [([],), ([4] * (p["k"] - 1),), (list(range(3, 3 + p["k"])),), ([9, 1, 1, 8, 2, 7, 30, 3],)],
        lambda rng, p: (integers(rng, 0, 20, p["k"] + 1, p["k"] + 4),),
    ),
    Family(
        "throw_ways", "total", 3, grid(d=(2, 3, 4), f=(5, 6, 8), rule=choices(
            "rule test", ("no two consecutive throws are equal", "face != last"),
            ("any two consecutive throws differ by at most 2", "abs(face - last) <= 2"),
            ("no throw is less than the one before it", "face >= last"))),
        """counts the ways to throw a die with the faces 1 to $f exactly $d times such that $rule and the sum of the
        throws is `total` (an integer of any size). The order of the throws matters. Returns the number of ways, 0 if
        there is none.""",
        """
def throw_ways(total):
    ways = {}
    for face in range(1, $f + 1):
        ways[face, face] = 1
    for _ in range($d - 1):
        longer = {}
        for (last, reached), count in ways.items():
            for face in range(1, $f + 1):
                if $test:
                    longer[face, reached + face] = longer.get((face, reached + face), 0) + count
        ways = longer
    count = 0
    for last in range(1, $f + 1):
        count += ways.get((last, total), 0)
    return count
""",
        lambda p: [(0,), (p["d"],), (p["d"] * p["f"],), (p["d"] * p["f"] - 1,), (p["d"] + 1,)],
        lambda rng, p: (integer(rng, p["d"] + 1, p["d"] * p["f"] - 1),),
    ),
)
