"""`python -m bamas_lite.generators`: write data/tasks/*.jsonl anew."""

from bamas_lite.generators import write

if __name__ == "__main__":
    for path in write():
        print(f"{path.name}: {len(path.read_text(encoding='utf-8').splitlines())} tasks")
