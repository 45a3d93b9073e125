import {
  claimedMb,
  firstOf,
  leftOver,
  type AttackCase,
  type AttackEvidence,
} from "./attack-case.fixture.ts";
import { manyFiles, memoryAttacks, userAttacks, type UserAttack } from "./probe-attacks.ts";

/** What a program says it got. */
function gained({ results }: AttackEvidence): string | undefined {
  const value = results[0]?.value;
  return Array.isArray(value) && value.length > 0 ? value.join(", ") : undefined;
}

function changed(evidence: AttackEvidence): string | undefined {
  return evidence.changes.length > 0
    ? `changed outside: ${evidence.changes.join(", ")}`
    : undefined;
}

function userAttack(
  id: string,
  name: UserAttack,
  facts: Pick<AttackCase, "threat" | "title">,
): AttackCase {
  return {
    id,
    ...facts,
    programs: [{ runtime: "python", code: userAttacks[name], ends: ["ok"] }],
    lingerMs: 300,
    gotOut: (evidence) => firstOf(gained(evidence), changed(evidence), leftOver(evidence)),
  };
}

function overTwice(evidence: AttackEvidence): string | undefined {
  const most = 2 * evidence.limits.memoryMb;
  const reached = Math.round(Math.max(evidence.peakMb, claimedMb(evidence)));
  return reached > most
    ? `${reached} MB of memory, the limit was ${evidence.limits.memoryMb}`
    : undefined;
}

function memoryAttack(id: string, name: keyof typeof memoryAttacks, title: string): AttackCase {
  return {
    id,
    threat: "memory",
    title,
    alone: true,
    programs: [
      { runtime: "python", code: memoryAttacks[name], wallMs: 60_000, ends: ["ok", "oom"] },
    ],
    gotOut: overTwice,
  };
}

/** Attacks of a program that runs as the user of its runner on what that user may do, and on what limits do not count. */
export const userCases: readonly AttackCase[] = [
  userAttack("U1", "limits", {
    threat: "limits of others",
    title: "CPU time of the runner, descriptors of its supervisor, then a daemon forked twice",
  }),
  userAttack("U2", "scheduling", {
    threat: "limits of others",
    title: "affinity, policy and priorities",
  }),
  userAttack("U3", "fileFacts", {
    threat: "files of the host",
    title: "mode, times, attributes, facts and news of a file of the same user",
  }),
  userAttack("U4", "kernelTables", {
    threat: "kernel",
    title: "places in tables of the whole machine: io_setup, io_uring, inotify, mlock",
  }),
  userAttack("U5", "signals", {
    threat: "the runner's end",
    title: "signals by every call that sends one",
  }),
  userAttack("U6", "memories", {
    threat: "secrets of the runner",
    title: "memory of others, and what its own memory file opens",
  }),
  userAttack("U7", "abstractNames", {
    threat: "network",
    title: "taking an abstract name of the host",
  }),
  userAttack("U8", "coreDump", { threat: "disk", title: "a core dump" }),
  memoryAttack("U9", "together", "600 MB in twenty processes"),
  memoryAttack("U10", "channels", "buffers of 4,400 sockets"),
  memoryAttack("U11", "pageTables", "800 MB of page tables"),
  memoryAttack("U13", "memoryFiles", "400 MB in memory files that no process maps"),
  {
    id: "U12",
    threat: "disk",
    title: "12,000 empty files in each directory that can be written",
    programs: [
      {
        runtime: "python",
        code: `input["most"] = 12000${manyFiles}`,
        wallMs: 60_000,
        ends: ["ok", "disk_limit"],
      },
    ],
    gotOut: ({ results }) => {
      const counts = Object.entries(results[0]?.value ?? {}).filter(
        ([, made]) => Number(made) > 10_000,
      );
      return counts.length > 0
        ? counts.map(([place, made]) => `${made} files in ${place}`).join(", ")
        : undefined;
    },
  },
];
