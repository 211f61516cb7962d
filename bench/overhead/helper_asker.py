"""`python helper_asker.py FOLDER SOCKET CLIENTS ASKS RATE`: that many clients of one user, each of which asks so many
times, so often a second; one line on stdout for each that was served, and for each answer, milliseconds. FOLDER has
talk.py, which it needs nothing else of."""

import sys
import threading
import time


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    import talk  # type: ignore[import-not-found]  # in that folder

    path, clients, asks, per_s = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    lines: list[str] = []
    connected = threading.Barrier(clients)

    def ask(number: int) -> None:
        one = talk.Talk(path, 20.0)
        one.ask("hello")
        connected.wait()
        time.sleep(number / clients / per_s)  # not all in the same moment
        for turn in range(asks):
            op = ("hello", "devices")[turn % 2]
            began_s = time.perf_counter()
            try:
                one.ask(op)
            except talk.Refused as error:
                if error.code != "too_fast":
                    raise
            else:
                lines.append(f"{op} {1000 * (time.perf_counter() - began_s):.3f}")
            time.sleep(1 / per_s)
        lines.append("connected yes")
        one.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(lines))


if __name__ == "__main__":
    main()
