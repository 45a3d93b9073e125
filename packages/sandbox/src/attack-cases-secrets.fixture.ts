import { readFileSync } from "node:fs";
import {
  attackPrelude,
  delivered,
  firstOf,
  type AttackCase,
  type AttackEvidence,
  type AttackProgram,
} from "./attack-case.fixture.ts";

/** One program, and then enough of another to meet every slot again. */
function thenThreeTimes(first: AttackProgram, next: AttackProgram): AttackProgram[] {
  return [first, next, next, next];
}

function laterSees(evidence: AttackEvidence, secret: string): boolean {
  return JSON.stringify(evidence.results.slice(1).map(({ value }) => value ?? null)).includes(
    secret,
  );
}

/** Lines that a made-up list of accounts does not have. */
const hostAccounts = readFileSync("/etc/passwd", "utf8")
  .split("\n")
  .filter((line) => /^(?:daemon|bin|mail|www-data|backup|sync):/.test(line));

const leftPlaces = "['.', '/tmp', '/dev/shm', '/var/tmp']";

/** Attacks on what others know: files, environment, memory, other calls. */
export const secretAttacks: readonly AttackCase[] = [
  {
    id: "S1",
    threat: "files of the host",
    title: "/etc/passwd and /etc/shadow",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} const fs = req('fs'); return tries({ passwd: () => fs.readFileSync('/etc/passwd', 'utf8'), shadow: () => fs.readFileSync('/etc/shadow', 'utf8') })`,
        ends: ["ok"],
      },
    ],
    gotOut: (evidence) =>
      firstOf(
        hostAccounts.some((line) => delivered(evidence).includes(line)) &&
          "accounts of the host were read",
        /root:[*!$]/.test(delivered(evidence)) && "passwords of the host were read",
      ),
  },
  {
    id: "S2",
    threat: "files of the host",
    title: "a world-readable file and a private one outside",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} const fs = req('fs'); return tries({ world: () => fs.readFileSync(input.outside + '/world.txt', 'utf8'), own: () => fs.readFileSync(input.outside + '/private.txt', 'utf8') })`,
        ends: ["ok"],
      },
    ],
    gotOut: (evidence) =>
      firstOf(
        delivered(evidence).includes(`PRIVATE-${evidence.aim.mark}`) && "the private file was read",
        delivered(evidence).includes(`WORLD-${evidence.aim.mark}`) &&
          "the world-readable file was read",
      ),
  },
  {
    id: "S3",
    threat: "secrets of the runner",
    title: "the environment of itself, its parent and the runner",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs'), secret = (text) => text.match(/ENV-SECRET-\\w+/)?.[0];
          return tries({
            env: () => secret(JSON.stringify(proc.env)),
            self: () => secret(fs.readFileSync('/proc/self/environ', 'utf8')),
            parent: () => secret(fs.readFileSync('/proc/' + proc.ppid + '/environ', 'utf8')),
            runner: () => secret(fs.readFileSync('/proc/' + input.runner + '/environ', 'utf8')),
          })`,
        ends: ["ok"],
      },
    ],
    gotOut: (evidence) =>
      delivered(evidence).includes("ENV-SECRET-")
        ? "a secret of the environment was read"
        : undefined,
  },
  {
    id: "S4",
    threat: "secrets of the runner",
    title: "the runner's globals and memory",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs');
          const own = proc.constructor.constructor('return globalThis.attackSecret')();
          if (own) return { leak: own };
          const needle = Buffer.from(['MEM', 'SECRET', ''].join('-'));
          const anonymous = fs.readFileSync('/proc/' + input.runner + '/maps', 'utf8').split('\\n').filter((line) => / rw-p /.test(line) && !line.includes('/'));
          const memory = fs.openSync('/proc/' + input.runner + '/mem', 'r');
          for (const line of anonymous) {
            let [at, end] = line.split(' ')[0].split('-').map((text) => parseInt(text, 16));
            for (; at < end; at += 4 << 20) {
              const part = Buffer.alloc(Math.min(4 << 20, end - at));
              try { fs.readSync(memory, part, 0, part.length, at) } catch { break }
              const found = part.indexOf(needle);
              if (found >= 0) return { leak: part.subarray(found, found + 40).toString('latin1') };
            }
          }
          return { none: true }`,
        wallMs: 60_000,
        ends: ["error"],
      },
    ],
    gotOut: (evidence) =>
      delivered(evidence).includes("MEM-SECRET-") ? "the runner's memory was read" : undefined,
  },
  {
    id: "S5",
    threat: "other calls",
    title: "the working directory of a call at the same time",
    parallel: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} req('fs').writeFileSync('call-a.txt', 'CALL-A-' + input.mark); await sleep(700); return 1`,
        ends: ["ok"],
      },
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs'), path = req('path'), found = [];
          const look = (file) => { try { found.push(fs.readFileSync(file, 'utf8').slice(0, 100)) } catch {} };
          await sleep(300);
          const up = path.dirname(proc.cwd());
          for (const dir of [up, path.dirname(up), '/tmp', '/sandbox']) {
            try { for (const name of fs.readdirSync(dir)) { look(path.join(dir, name, 'call-a.txt')); look(path.join(dir, name)) } } catch {}
          }
          for (const id of fs.readdirSync('/proc').filter((name) => /^\\d+$/.test(name))) look('/proc/' + id + '/cwd/call-a.txt');
          return found`,
        ends: ["ok", "error"],
      },
    ],
    gotOut: (evidence) =>
      laterSees(evidence, `CALL-A-${evidence.aim.mark}`)
        ? "the other call's file was read"
        : undefined,
  },
  {
    id: "S6",
    threat: "other calls",
    title: "files left for the next call",
    alone: true,
    programs: thenThreeTimes(
      {
        runtime: "node",
        code: `${attackPrelude} let left = 0; for (const dir of ${leftPlaces}) try { req('fs').writeFileSync(dir + '/left-' + input.mark, 'LEFT-' + input.mark); left++ } catch {} return left`,
        ends: ["ok"],
      },
      {
        runtime: "node",
        code: `${attackPrelude} const found = []; for (const dir of ${leftPlaces}) try { found.push(dir + ' ' + req('fs').readFileSync(dir + '/left-' + input.mark, 'utf8')) } catch {} return found`,
        ends: ["ok"],
      },
    ),
    gotOut: (evidence) =>
      laterSees(evidence, `LEFT-${evidence.aim.mark}`) ? "a later call found the files" : undefined,
  },
  {
    id: "S7",
    threat: "other calls",
    title: "a global left for the next call",
    alone: true,
    programs: thenThreeTimes(
      { runtime: "node", code: "globalThis.leak = 'GLOBAL-' + input.mark; return 1", ends: ["ok"] },
      { runtime: "node", code: "return { leak: globalThis.leak ?? null }", ends: ["ok"] },
    ),
    gotOut: (evidence) =>
      laterSees(evidence, `GLOBAL-${evidence.aim.mark}`)
        ? "a later call found the global"
        : undefined,
  },
];
