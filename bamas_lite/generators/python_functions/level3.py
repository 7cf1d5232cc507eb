"""Level 3: an algorithm - dynamic programming, a stack, a search, a simulation."""

from itertools import product

from bamas_lite.generators.python_functions.family import (
    Family,
    choices,
    grid,
    integer,
    integers,
    letters,
    pick,
)

_SPECIAL = choices(
    "meaning special", ("the larger of the two", "max(left, right)"), ("the smaller of the two", "min(left, right)"),
    ("the absolute difference of the two", "abs(left - right)"),
    ("ten times the first plus the second", "10 * left + right"),
    ("the sum of the squares of the two", "left * left + right * right"))

_NAMED = {"+": "sum", "-": "difference (first minus second)", "*": "product"}

_ORDERS = [{"rank": str(dict(zip("+-*", ranks, strict=True)) | {"end": 0}).replace("'", '"'),
            "order": ", ".join(" and ".join(f"`{op}`" for op, r in zip("+-*", ranks, strict=True) if r == level)
                               + (" first" if level == max(ranks) else " last" if level == 1 else " next")
                               for level in range(max(ranks), 0, -1))}
           for ranks in product((1, 2, 3), repeat=3)
           if set(ranks) == set(range(1, max(ranks) + 1)) and max(ranks) > 1 and ranks != (1, 1, 2)]

_CORNERS = [{"corner": corner, "row": row, "col": col, "way": way, "dr": dr, "dc": dc, "turn": turn, "along": along}
            for corner, row, col, clockwise, counter in (
                ("top left", "0", "0", (0, 1, "right"), (1, 0, "down")),
                ("top right", "0", "cols - 1", (1, 0, "down"), (0, -1, "left")),
                ("bottom right", "rows - 1", "cols - 1", (0, -1, "left"), (-1, 0, "up")),
                ("bottom left", "rows - 1", "0", (-1, 0, "up"), (0, 1, "right")))
            for way, (dr, dc, along), turn in (
                ("clockwise", clockwise, "dc, -dr"), ("counterclockwise", counter, "-dc, dr"))]

_RULES = [{"listed": ", ".join(f"`{i:03b}`" for i in range(8) if rule >> i & 1),
           "alive": "(" + ", ".join(f'"{i:03b}"' for i in range(8) if rule >> i & 1) + ")"}
          for rule in (22, 30, 54, 90, 110, 150)]


def _postfix(rng, operators, depth=2):
    if depth == 0:
        return str(integer(rng, 0, 9))
    left, right = (_postfix(rng, operators, integer(rng, 0, depth - 1)) for _ in range(2))
    return f"{left} {right} {pick(rng, operators)}"


def _folded(rng, p, depth=2):
    text = letters(rng, "abc", 1, 2)
    if depth:
        inside, count = _folded(rng, p, depth - 1), str(integer(rng, 2, 3))
        block = p["left"] + inside + p["right"]
        text += (count + block if p["before"] else block + count) + letters(rng, "de", 0, 1)
    return text


def _sum(rng, least, most):
    text = str(integer(rng, 1, 9))
    for _ in range(integer(rng, least, most)):
        text += f" {pick(rng, '+-*')} {integer(rng, 1, 9)}"
    return text


def _leaper_goal(rng, a, b):
    size = integer(rng, max(a, b) + 2, max(a, b) + 6)
    if rng.random() < 0.3:
        return size, integer(rng, 0, size - 1), integer(rng, 0, size - 1)
    row = col = 0
    for _ in range(integer(rng, 1, 4)):
        cells = [(row + i * x, col + j * y) for x, y in ((a, b), (b, a)) for i in (-1, 1) for j in (-1, 1)]
        row, col = pick(rng, [cell for cell in cells if 0 <= min(cell) and max(cell) < size])
    return size, row, col


def _matrix(rng, rows, cols):
    return [[integer(rng, 0, 30) for _ in range(cols)] for _ in range(rows)]


FAMILIES = (
    Family(
        "climb_ways", "n", 3, grid(m=(5, 7), steps=(
            (1, 2), (1, 3), (2, 3), (1, 2, 4), (1, 3, 4), (1, 2, 5), (2, 3, 5))),
        """counts the ways to climb exactly `n` stairs (a non-negative integer) with steps of the sizes $steps, where
        the order of the steps matters. Every stair whose number is a multiple of $m (counting from 1) is broken and
        must not be stepped on, not even at the end. For `n` = 0 there is one way: no step at all.""",
        """
def climb_ways(n):
    ways = [1] + [0] * n
    for stair in range(1, n + 1):
        if stair % $m == 0:
            continue
        for step in $steps:
            if step <= stair:
                ways[stair] += ways[stair - step]
    return ways[n]
""",
        lambda p: [(0,), (1,), (p["m"],), (p["m"] + 1,), (16,)],
        lambda rng, p: (integer(rng, 2, 19),),
    ),
    Family(
        "fewest_coins", "amount", 3, grid(coins=((1, 4, 5), (2, 5), (3, 7), (1, 6, 10), (4, 9), (5, 8), (1, 3, 4),
                                                 (2, 7, 9),
                                                 (3, 5, 11), (1, 7, 10), (4, 6, 11), (1, 5, 12))),
        """returns the least number of coins with which the non-negative integer `amount` can be paid exactly, with
        coins of the values $coins, any number of each; or -1 if it cannot be paid. An amount of 0 needs 0 coins.""",
        """
def fewest_coins(amount):
    least = [0] + [amount + 1] * amount
    for value in range(1, amount + 1):
        for coin in $coins:
            if coin <= value:
                least[value] = min(least[value], least[value - coin] + 1)
    if least[amount] > amount:
        return -1
    return least[amount]
""",
        lambda p: [(0,), (1,), (p["coins"][0],), (sum(p["coins"]),)],
        lambda rng, p: (integer(rng, 5, 40),),
    ),
    Family(
        "postfix_value", "expression", 3, tuple(
            {"a": a, "b": b, "does_a": _NAMED[a], "does_b": _NAMED[b]} | special for a, b in ("+-", "+*", "-*")
            for special in _SPECIAL),
        """evaluates the string `expression` in postfix notation: items separated by single spaces, each a non-negative
        integer or one of the operators `$a`, `$b` and `@`. An operator takes the two values before it (first and
        second, in the order in which they were produced) and puts its result in their place: `$a` gives the $does_a,
        `$b` the $does_b, and `@` $meaning. The expression is valid; the function returns its value.""",
        """
def postfix_value(expression):
    stack = []
    for item in expression.split():
        if item in ("$a", "$b", "@"):
            right = stack.pop()
            left = stack.pop()
            if item == "@":
                stack.append($special)
            elif item == "$a":
                stack.append(left $a right)
            else:
                stack.append(left $b right)
        else:
            stack.append(int(item))
    return stack[0]
""",
        lambda p: [("12",), ("3 8 @",), (f"9 4 {p['a']} 2 7 {p['b']} @",), (f"6 5 2 @ {p['a']} 3 {p['b']}",)],
        lambda rng, p: (_postfix(rng, (p["a"], p["b"], "@"), 3),),
    ),
    Family(
        "cache_hits", "requests", 3, grid(c=range(2, 7), policy=choices(
            "policy touch", ("was not requested for the longest time", "cache.remove(page)"),
            ("has been in the cache for the longest time (however often it was requested since then)", "continue"))),
        """simulates a cache that holds at most $c pages and is empty at the start. The list `requests` has the numbers
        of the pages in the order in which they are requested. A page that is in the cache is a hit. Any other page is
        loaded into the cache; if the cache is full, the page that $policy is removed first. Returns the number of
        hits.""",
        """
def cache_hits(requests):
    cache = []
    hits = 0
    for page in requests:
        if page in cache:
            hits += 1
            $touch
        elif len(cache) == $c:
            cache.pop(0)
        cache.append(page)
    return hits
""",
        lambda p: [([],), ([1, 1, 1],), (list(range(p["c"])) * 2,), (list(range(p["c"] + 1)) * 2,),
                   (list(range(p["c"])) + [0, 9, 0, 1, 8, 0, 9],)],
        lambda rng, p: (integers(rng, 1, p["c"] + 2, p["c"] + 4, 2 * p["c"] + 6),),
    ),
    Family(
        "spiral_walk", "matrix", 3, grid(corner=_CORNERS, keep=choices(
            "keep k", ("all items in the order of the walk", ""),
            ("every second item of the walk, from the first one on", "[::2]"),
            ("every third item of the walk, from the first one on", "[::3]"))),
        """walks along a spiral through `matrix`, a list of at least one row, all rows being lists of the same length
        of at least one. It starts at the $corner corner, first goes $along, and runs $way inward: it goes straight on
        until the next cell would be outside the matrix or was visited before, then turns, until every cell was
        visited. Returns a list of $keep.""",
        """
def spiral_walk(matrix):
    rows, cols = len(matrix), len(matrix[0])
    row, col, dr, dc = $row, $col, $dr, $dc
    walk, seen = [], set()
    for _ in range(rows * cols):
        walk.append(matrix[row][col])
        seen.add((row, col))
        r, c = row + dr, col + dc
        if not (0 <= r < rows and 0 <= c < cols) or (r, c) in seen:
            dr, dc = $turn
        row, col = row + dr, col + dc
    return walk$k
""",
        lambda p: [([[5]],), ([[1, 2, 3, 4]],), ([[1], [2], [3]],), ([[1, 2, 3], [4, 5, 6], [7, 8, 9]],)],
        lambda rng, p: (_matrix(rng, integer(rng, 2, 4), integer(rng, 2, 4)),),
    ),
    Family(
        "longest_chain", "numbers", 3, grid(how=[
            {"how": f"at least {d} greater than the number before it in the chain",
             "test": f"value - numbers[j] >= {d}", "d": d}
            for d in range(1, 8)] + [
            {"how": f"greater than the number before it in the chain, by at most {d}",
             "test": f"1 <= value - numbers[j] <= {d}", "d": d}
            for d in range(2, 8)]),
        """returns the length of the longest chain in the list `numbers`. A chain is made of numbers of the list in
        their order, where any numbers may be skipped, such that each is $how. A single number is a chain of length 1;
        an empty list gives 0.""",
        """
def longest_chain(numbers):
    lengths = []
    for i, value in enumerate(numbers):
        best = 0
        for j in range(i):
            if $test:
                best = max(best, lengths[j])
        lengths.append(best + 1)
    return max(lengths, default=0)
""",
        lambda p: [([],), ([3, 3, 3],), ([0, p["d"], 2 * p["d"] - 1, 2 * p["d"], 3 * p["d"] + 1],), ([9, 7, 5, 1],)],
        lambda rng, p: (integers(rng, 0, 12 + p["d"], 6, 10),),
    ),
    Family(
        "count_regions", "grid", 3, grid(m=range(2, 7), touch=choices(
            "touch extra", ("a side (not only a corner)", ""),
            ("a side or a corner", " + [(r + a, c + b) for a in (-1, 1) for b in (-1, 1)]"))),
        """counts regions in `grid`, a list of strings of the same length that are made of `#` and `.`. A region is a
        largest possible set of `#` cells that hang together, where two cells are neighbors if they share $touch.
        Returns the number of regions that have at least $m cells. An empty grid gives 0.""",
        """
def count_regions(grid):
    left = {(r, c) for r, line in enumerate(grid) for c, cell in enumerate(line) if cell == "#"}
    count = 0
    while left:
        stack, size = [left.pop()], 0
        while stack:
            r, c = stack.pop()
            size += 1
            for cell in [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]$extra:
                if cell in left:
                    left.remove(cell)
                    stack.append(cell)
        if size >= $m:
            count += 1
    return count
""",
        lambda p: [([],), ([".." * 2, "...."],), (["#" * p["m"], "." * p["m"], "#" * (p["m"] - 1) + "."],),
                   (["#.#.#.", ".#.#.#", "#.....", "##.##."],)],
        lambda rng, p: ([letters(rng, "##..." if p["extra"] else "#.", 7, 7) for _ in range(integer(rng, 3, 5))],),
    ),
    Family(
        "evaluate", "expression", 3, tuple(_ORDERS),
        """computes the value of the string `expression`: positive integers with the operators `+`, `-` and `*` between
        them, all separated by single spaces, without brackets. The operators follow an unusual order: $order;
        operators of equal standing are worked out from left to right. Returns the integer.""",
        """
def evaluate(expression):
    rank = $rank
    values, waiting = [], []
    for item in expression.split() + ["end"]:
        if item.isdigit():
            values.append(int(item))
            continue
        while waiting and rank[waiting[-1]] >= rank[item]:
            operator = waiting.pop()
            right, left = values.pop(), values.pop()
            if operator == "+":
                values.append(left + right)
            elif operator == "-":
                values.append(left - right)
            else:
                values.append(left * right)
        waiting.append(item)
    return values[0]
""",
        lambda p: [("12",), ("9 - 4 - 3",), ("2 + 3 * 4 - 5 + 6 * 2",), ("7 - 2 * 3 + 1 - 4 * 5",)],
        lambda rng, p: (_sum(rng, 2, 5),),
    ),
    Family(
        "last_leaving", "n", 3, grid(k=choices(
            "k kth", (2, "second"), (3, "third"), (4, "fourth"), (5, "fifth"), (6, "sixth"), (7, "seventh")), m=(2, 3)),
        """plays a counting-out game. The people 1 to `n` stand in a circle in this order; counting starts with person
        1, and the $kth person counted leaves. Counting then starts again at 1 with the next person still in the
        circle, and again the $kth leaves, until nobody is left. Returns the list of the last $m people to leave, in
        the order in which they leave; with fewer than $m people, all of them in that order. `n` is a non-negative
        integer.""",
        """
def last_leaving(n):
    circle = list(range(1, n + 1))
    order = []
    at = 0
    while circle:
        at = (at + $k - 1) % len(circle)
        order.append(circle.pop(at))
    return order[-$m:]
""",
        lambda p: [(0,), (1,), (p["m"],), (p["k"],)],
        lambda rng, p: (integer(rng, 4, 25),),
    ),
    Family(
        "best_value", "items", 3, grid(cap=range(6, 13), use=choices(
            "use rooms", ("at most once", "range($cap, weight - 1, -1)"),
            ("any number of times", "range(weight, $cap + 1)"))),
        """returns the greatest total value that can be packed into a bag that carries a total weight of at most $cap.
        `items` is a list of tuples (weight, value) of positive integers; each item can be taken $use. Nothing packed
        has the value 0.""",
        """
def best_value(items):
    best = [0] * ($cap + 1)
    for weight, value in items:
        for room in $rooms:
            best[room] = max(best[room], best[room - weight] + value)
    return best[$cap]
""",
        lambda p: [([],), ([(p["cap"] + 1, 50), (p["cap"], 3)],), ([(1, 2)],),
                   ([(p["cap"] // 2, 10), (p["cap"] - p["cap"] // 2, 9), (p["cap"] - 1, 17)],)],
        lambda rng, p: ([(integer(rng, 2, p["cap"] - 1), integer(rng, 3, 20)) for _ in range(integer(rng, 3, 5))],),
    ),
    Family(
        "edit_cost", "source, target", 3, grid(a=(1, 2, 3), b=(1, 2, 4), c=(1, 3)),
        """returns the least total cost of turning the string `source` into the string `target`, where inserting a
        character costs $a, deleting a character costs $b, and replacing a character with another one costs $c. Keeping
        a character costs nothing.""",
        """
def edit_cost(source, target):
    row = [j * $a for j in range(len(target) + 1)]
    for i in range(1, len(source) + 1):
        last, row = row, [i * $b]
        for j in range(1, len(target) + 1):
            change = 0 if source[i - 1] == target[j - 1] else $c
            row.append(min(row[-1] + $a, last[j] + $b, last[j - 1] + change))
    return row[-1]
""",
        lambda p: [("", ""), ("", "abc"), ("abc", ""), ("abcd", "bcda"), ("aab", "xyz")],
        lambda rng, p: (letters(rng, "abc", 3, 6), letters(rng, "abcd", 3, 6)),
    ),
    Family(
        "leaper_moves", "size, row, col", 3, grid(leap=choices(
            "a b", (0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (0, 2), (2, 2), (1, 4), (0, 3), (2, 4), (3, 4), (1, 5))),
        """returns the least number of moves in which a piece gets from the cell (0, 0) to the cell (`row`, `col`) of a
        square board with `size` rows and `size` columns, both numbered from 0, or -1 if it cannot get there. In one
        move one of the two coordinates (either one) changes by exactly $a and the other by exactly $b, each up or
        down, and the piece stays on the board. The goal is on the board.""",
        """
def leaper_moves(size, row, col):
    moves = {(0, 0): 0}
    queue = [(0, 0)]
    for r, c in queue:
        for a, b in (($a, $b), ($b, $a)):
            for cell in ((r + a, c + b), (r + a, c - b), (r - a, c + b), (r - a, c - b)):
                if cell not in moves and 0 <= min(cell) and max(cell) < size:
                    moves[cell] = moves[r, c] + 1
                    queue.append(cell)
    return moves.get((row, col), -1)
""",
        lambda p: [(1, 0, 0), (p["b"] + 1, p["a"], p["b"]), (p["b"], p["b"] - 1, 0), (8, 7, 7)],
        lambda rng, p: _leaper_goal(rng, p["a"], p["b"]),
    ),
    Family(
        "next_cells", "cells", 3, grid(rule=_RULES, s=choices(
            "s steps", (1, "one step"), (2, "two steps"), (3, "three steps")), border=choices(
            "border padded", ("Beyond both ends all cells count as 0", '"0" + cells + "0"'),
            ("The row is closed to a ring: the first and the last cell are neighbors",
             "cells[-1] + cells + cells[0]"))),
        """develops a row of cells, given as a string `cells` of at least three characters `0` and `1`. In each step
        all cells change at once: a cell becomes `1` if the three characters of its left neighbor, itself and its right
        neighbor (before the step) are one of $listed, and `0` otherwise. $border. Returns the string after $steps.""",
        """
def next_cells(cells):
    alive = $alive
    for _ in range($s):
        padded = $padded
        cells = "".join("1" if padded[i:i + 3] in alive else "0" for i in range(len(cells)))
    return cells
""",
        lambda p: [("000",), ("1111",), ("1000000",), ("0000001",)],
        lambda rng, p: (letters(rng, "01", 6, 10),),
    ),
    Family(
        "best_window", "numbers", 3, tuple(
            {"low": low, "high": low + more} for low in (1, 2, 3, 4) for more in (1, 2, 3)),
        """returns the greatest sum of a stretch of consecutive numbers of the list `numbers` (integers, negative ones
        too) that is at least $low and at most $high numbers long. If the list has fewer than $low numbers it returns
        None.""",
        """
def best_window(numbers):
    best = None
    for start in range(len(numbers)):
        for end in range(start + $low, min(start + $high, len(numbers)) + 1):
            total = sum(numbers[start:end])
            if best is None or total > best:
                best = total
    return best
""",
        lambda p: [([],), ([5] * (p["low"] - 1),), ([-4] * (p["low"] + 1),), ([1] * (p["high"] + 2),)],
        lambda rng, p: (integers(rng, -9, 12, p["low"] + 1, p["high"] + 5),),
    ),
    Family(
        "unfold", "text", 3, grid(turn=choices(
            "how block", ("repeated that many times", "block"),
            ("reversed and then repeated that many times", "block[::-1]")),
            pair=choices("left right", ("(", ")"), ("[", "]"), ("{", "}"), ("<", ">")), where=choices(
            "where before first digit close",
            ("before its opening", True, "stack, counts = [\"\"], []", "counts.append(int(character))",
             "block = stack.pop()\n            stack[-1] += $block * counts.pop()"),
            ("after its closing", False, "stack = [\"\"]", "stack[-1] += $block * int(character)",
             "block = stack.pop()"))),
        """unfolds a string `text` of lower-case letters and blocks. A block is enclosed in `$left` and `$right`, its
        count, one digit from 1 to 9, stands directly $where bracket, and it may hold further blocks. Each block, its
        inner blocks being unfolded first, is $how and takes the place of the block with its count and brackets.
        Returns the unfolded string; `text` is well-formed and may be empty.""",
        """
def unfold(text):
    $first
    for character in text:
        if character.isdigit():
            $digit
        elif character == "$left":
            stack.append("")
        elif character == "$right":
            $close
        else:
            stack[-1] += character
    return stack[0]
""",
        lambda p: [("",), ("abc",), *[(text.replace("[", p["left"]).replace("]", p["right"]),) for text in (
            ("2[ab]3[cd]", "1[xy4[uz]]") if p["before"] else ("[ab]2[cd]3", "[xy[uz]4]1"))]],
        lambda rng, p: (_folded(rng, p, integer(rng, 1, 2)),),
    ),
    Family(
        "start_times", "durations", 3, grid(c=range(2, 6), pause=(1, 2, 3)),
        """plans jobs on $c machines, all free at time 0. The jobs, whose durations are in the list `durations`
        (positive integers), are assigned in the order of the list, each to the machine that is free earliest, and
        start as soon as that machine is free. After each job its machine needs a pause of $pause before it is free
        again. Returns the list of the times at which the jobs start.""",
        """
def start_times(durations):
    free = [0] * $c
    starts = []
    for duration in durations:
        earliest = min(free)
        machine = free.index(earliest)
        starts.append(earliest)
        free[machine] = earliest + duration + $pause
    return starts
""",
        lambda p: [([],), ([4],), ([5] * (p["c"] + 1),), (list(range(p["c"] + 3, 0, -1)),)],
        lambda rng, p: (integers(rng, 1, 9, p["c"] + 1, p["c"] + 4),),
    ),
    Family(
        "zigzag", "text", 3, grid(r=range(2, 7), start=choices(
            "start first step", ("top", "0", 1), ("bottom", "$r - 1", -1))),
        """writes the characters of the string `text` in a zigzag over $r lines, one character a line: it begins on the
        $start line, moves by one line with every character to the line at the other edge, then back again, and so on.
        Returns the string of all characters read line by line, the top line first, each line in the order of
        writing.""",
        """
def zigzag(text):
    lines = [""] * $r
    line, step = $first, $step
    for character in text:
        lines[line] += character
        if not 0 <= line + step < $r:
            step = -step
        line += step
    return "".join(lines)
""",
        lambda p: [("",), ("q",), ("abcdefghijklm"[:p["r"] + 1],), ("abcdefghijklmnopqrst",)],
        lambda rng, p: (letters(rng, "abcdefghiklmnoprstuw", p["r"] + 2, 2 * p["r"] + 5),),
    ),
    Family(
        "best_profit", "prices", 3, grid(fee=range(1, 11)),
        """returns the greatest profit that can be made with one kind of share, whose prices on consecutive days are in
        the list `prices`. On each day one share may be bought if none is held, or the share that is held may be sold;
        never is more than one held, and there is any number of purchases and sales. Each sale costs a fee of $fee.
        Doing nothing gives the profit 0.""",
        """
def best_profit(prices):
    if not prices:
        return 0
    cash, holding = 0, -prices[0]
    for price in prices[1:]:
        cash = max(cash, holding + price - $fee)
        holding = max(holding, cash - price)
    return cash
""",
        lambda p: [([],), ([7],), ([9, 8, 5, 3],), ([1, p["fee"] + 1, 1, p["fee"] + 2, 1],),
                   ([2, p["fee"] + 3, p["fee"] + 1, 2 * p["fee"] + 5],)],
        lambda rng, p: (integers(rng, 1, 10 + 2 * p["fee"], 5, 8),),
    ),
)
