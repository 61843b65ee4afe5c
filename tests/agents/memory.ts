// Search for words in everything that a session has inside: the memory, environment and command line of each of its processes, its files,
// and what the engine tells of its containers and images. Done by a container that may read all processes, past the product: some agents
// keep other processes of their own user from reading them.

import * as z from 'zod';
import type { Bench } from '../cli/bench.ts';
import { images } from '../support/engines.ts';

/** What a search found. */
export interface Searched {
  /** How many processes were searched, and how many bytes of their memory. */
  readonly processes: number;
  readonly bytes: number;
  /** Processes that could not be searched, with the reason. */
  readonly unread: readonly string[];
  /** Where words were found: a process and the number of the word. */
  readonly holders: readonly (readonly [process: string, word: number])[];
  /** What the engine tells, as JSON. */
  readonly inspected: string;
}

// Prints JSON. The words come over the environment, and this process searches only others.
const PROGRAM = String.raw`
import json, os
wanted = [word.encode() for word in json.loads(os.environ["WORDS"])]
PAGE, PART = os.sysconf("SC_PAGE_SIZE"), 4 << 20
KEPT = max(map(len, wanted))
def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/pagemap", "rb", 0) as there, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            area, mode, *_ = line.split()
            # What is mapped from a file and cannot be written is the file.
            if "r" not in mode or "[v" in line or ("w" not in mode and "/" in line): continue
            begin, end = (int(one, 16) for one in area.split("-"))
            tail = b""
            for part in range(begin, end, PART):
                there.seek(part // PAGE * 8)
                marks = there.read((min(part + PART, end) - part) // PAGE * 8)
                at, count = 0, len(marks) // 8
                while at < count:
                    last = at
                    while last < count and marks[last * 8 + 7] & 0xC0: last += 1
                    if last == at:
                        tail, at = b"", at + 1
                        continue
                    mem.seek(part + at * PAGE)
                    data = mem.read((last - at) * PAGE)
                    yield tail + data
                    tail, at = data[-KEPT:], last
def plain(pid):
    for name in ["environ", "cmdline"]:
        with open(f"/proc/{pid}/{name}", "rb") as file: yield file.read()
holders, unread, bytes_read, processes = set(), [], 0, 0
ids = json.loads(os.environ["IDS"])
for pid in (int(one) for one in os.listdir("/proc") if one.isdigit()):
    try:
        # The path of its control group has the id of its container.
        group = open(f"/proc/{pid}/cgroup").read()
        if not any(one in group for one in ids): continue
        name = open(f"/proc/{pid}/comm").read().strip()
        for source in [memory(pid), plain(pid)]:
            for data in source:
                bytes_read += len(data)
                holders.update((name, at) for at, word in enumerate(wanted) if word in data)
        processes += 1
    except (ProcessLookupError, FileNotFoundError): pass
    except OSError as error: unread.append(f"{pid}: {error}")
print(json.dumps({"processes": processes, "bytes": bytes_read, "unread": unread, "holders": sorted(holders)}))
`;

const searchedSchema = z.object({
  processes: z.number(),
  bytes: z.number(),
  unread: z.array(z.string()),
  holders: z.array(z.tuple([z.string(), z.number()])),
});

/** Searches every sandbox of a bench for words. */
export async function searchInside(bench: Bench, words: readonly string[]): Promise<Searched> {
  const ids = await bench.left();
  const told = await Promise.all(ids.map(id => bench.asked(`/containers/${id}/json`)));
  const of = z.array(z.looseObject({ Image: z.string() })).parse(told);
  const ofImages = await Promise.all(
    of.flatMap(({ Image }) => [bench.asked(`/images/${Image}/json`), bench.asked(`/images/${Image}/history`)]),
  );
  const found = await searcher(bench, [`IDS=${JSON.stringify(ids)}`, `WORDS=${JSON.stringify(words)}`]);
  return { ...searchedSchema.parse(found), inspected: JSON.stringify([told, ofImages]) };
}

async function searcher(bench: Bench, Env: readonly string[]): Promise<unknown> {
  const { Id } = z.looseObject({ Id: z.string() }).parse(
    await bench.asked('/containers/create', {
      Image: images.debian,
      Cmd: ['python3', '-c', PROGRAM],
      User: '0:0',
      Env,
      // One stream, without frames around its pieces.
      Tty: true,
      HostConfig: { PidMode: 'host', NetworkMode: 'none', CapAdd: ['SYS_PTRACE'] },
    }),
  );
  try {
    await bench.asked(`/containers/${Id}/start`, {});
    await bench.asked(`/containers/${Id}/wait`, {});
    return await bench.asked(`/containers/${Id}/logs?stdout=1&stderr=1`);
  } finally {
    await bench.asked(`/containers/${Id}?force=1`, 'remove');
  }
}
