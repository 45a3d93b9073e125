import {
  attackPrelude,
  blocked,
  firstOf,
  grown,
  leftOver,
  numberOf,
  overMemory,
  overTasks,
  overTime,
  valueOf,
  type AttackCase,
} from "./attack-case.fixture.ts";

const loopMs = 400;

const loops: AttackCase[] = [
  {
    id: "R1",
    threat: "endless loop",
    title: "while (true) {}",
    programs: [{ runtime: "node", code: "while (true) {}", wallMs: loopMs, ends: ["timeout"] }],
    gotOut: (evidence) => overTime(evidence, loopMs),
  },
  {
    id: "R2",
    threat: "endless loop",
    title: "microtasks without end",
    programs: [
      { runtime: "node", code: "while (true) await null", wallMs: loopMs, ends: ["timeout"] },
    ],
    gotOut: (evidence) => overTime(evidence, loopMs),
  },
  {
    id: "R3",
    threat: "endless loop",
    title: "a regular expression that backtracks without end",
    programs: [
      {
        runtime: "node",
        code: "return /^(a+)+$/.test('a'.repeat(40) + 'b')",
        wallMs: loopMs,
        ends: ["timeout"],
      },
    ],
    gotOut: (evidence) => overTime(evidence, loopMs),
  },
  {
    id: "R4",
    threat: "endless loop",
    title: "blocked in a native call that waits for a subprocess",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} req('child_process').execSync('sleep 6'); return 1`,
        wallMs: loopMs,
        ends: ["timeout"],
      },
    ],
    lingerMs: 150,
    gotOut: (evidence) => firstOf(overTime(evidence, loopMs), leftOver(evidence)),
  },
];

const memory: AttackCase[] = [
  {
    id: "R5",
    threat: "memory",
    title: "small objects without end",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} const kept = []; for (;;) kept.push({ a: 1, b: [1, 2, 3, 4] })`,
        wallMs: 60_000,
        ends: ["oom"],
      },
    ],
    gotOut: overMemory,
  },
  {
    id: "R6",
    threat: "memory",
    title: "three arrays of 880 MB in one burst",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} const kept = []; for (let i = 0; i < 3; i++) { kept.push(new Array(1.1e8).fill(i)); console.log(880 * kept.length + ' MB') } return kept.length`,
        wallMs: 60_000,
        ends: ["oom"],
      },
    ],
    gotOut: overMemory,
  },
  {
    id: "R7",
    threat: "memory",
    title: "800 MB beside the heap",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} const kept = []; for (let i = 1; i <= 50; i++) { const part = new Uint8Array(16 << 20); part.fill(1); kept.push(part); console.log(16 * i + ' MB') } return kept.length`,
        wallMs: 60_000,
        ends: ["oom", "error"],
      },
    ],
    gotOut: overMemory,
  },
];

const processes: AttackCase[] = [
  {
    id: "R8",
    threat: "fork bomb",
    title: "300 subprocesses",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          let started = 0;
          for (let i = 0; i < 300; i++) {
            try {
              const child = req('child_process').spawn('/bin/sleep', ['4'], { stdio: 'ignore', detached: true });
              child.on('error', () => {});
              if (child.pid) started++;
            } catch {}
          }
          await sleep(200);
          return { started }`,
        wallMs: 60_000,
        ends: ["ok", "error", "crashed", "timeout", "oom"],
      },
    ],
    lingerMs: 150,
    gotOut: overTasks,
  },
  {
    id: "R9",
    threat: "fork bomb",
    title: "150 worker threads",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const { Worker } = req('worker_threads');
          let started = 0;
          for (let i = 0; i < 150; i++) {
            try {
              const worker = new Worker('setTimeout(() => {}, 3000)', { eval: true, resourceLimits: { maxOldGenerationSizeMb: 4 } });
              worker.on('error', () => {});
              worker.on('online', () => started++);
            } catch {}
          }
          await sleep(800);
          return { started }`,
        wallMs: 30_000,
        ends: ["ok", "error", "crashed", "timeout", "oom"],
      },
    ],
    gotOut: overTasks,
  },
];

const floods: AttackCase[] = [
  {
    id: "R10",
    threat: "output flood",
    title: "256 MB to stdout",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const block = Buffer.alloc(1 << 20, 65);
          for (let i = 0; i < 256; i++) {
            try { req('fs').writeSync(1, block) } catch (error) { if (error.code !== 'EAGAIN') throw error; i-- }
          }
          return 1`,
        wallMs: 60_000,
        ends: ["output_limit"],
      },
    ],
    gotOut: ({ runner, results }) =>
      firstOf(
        grown(runner, 100),
        blocked(runner),
        results[0]?.status === "ok" && "all of it was taken",
        (results[0]?.stdout.length ?? 0) > 300_000 && "all of it was kept",
      ),
  },
  {
    id: "R11",
    threat: "output flood",
    title: "a result of 100 MB",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: "return 'x'.repeat(100 << 20)",
        wallMs: 60_000,
        ends: ["oom", "protocol", "error", "output_limit"],
      },
    ],
    gotOut: (evidence) =>
      firstOf(
        String(valueOf(evidence) ?? "").length > 2_000_000 && "delivered",
        grown(evidence.runner, 150),
        blocked(evidence.runner),
      ),
  },
  {
    id: "R12",
    threat: "output flood",
    title: "300,000 progress messages",
    alone: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const body = Buffer.from(JSON.stringify({ kind: 'progress', fraction: 0.5, detail: 'x'.repeat(32) }));
          const header = Buffer.alloc(4);
          header.writeUInt32LE(body.length);
          const message = Buffer.concat([header, body]);
          for (let i = 0; i < 300000; i++) {
            progress(i / 300000, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx');
            try { req('fs').writeSync(3, message) } catch {}
          }
          return 1`,
        wallMs: 60_000,
        ends: ["protocol", "output_limit"],
      },
    ],
    gotOut: ({ runner, progress }) =>
      firstOf(
        grown(runner, 100),
        blocked(runner),
        progress > 5_000 && `${progress} messages were handled`,
      ),
  },
];

const files: AttackCase[] = [
  {
    id: "R13",
    threat: "disk",
    title: "800 MB of files into its directory, 80 MB into others",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs'), block = Buffer.alloc(4 << 20, 1), by = {}, left = [];
          let mb = 0;
          for (const dir of [proc.cwd(), '/tmp', '/var/tmp', '/dev', '/dev/shm']) {
            for (let i = 0; i < (dir === proc.cwd() ? 200 : 20); i++) {
              const file = dir + '/' + input.mark + dir.replaceAll('/', '-') + '-' + i;
              try { fs.writeFileSync(file, block) } catch { break } finally { left.push(file) }
              mb += 4;
              by[dir] = (by[dir] ?? 0) + 4;
            }
          }
          for (const file of left) try { fs.unlinkSync(file) } catch {}
          return { mb, by }`,
        wallMs: 60_000,
        ends: ["ok", "disk_limit", "oom"],
      },
    ],
    // A program that was stopped by a watchdog says nothing; one that went through to its end says how much it wrote.
    gotOut: (evidence) => {
      const mb = numberOf(evidence, "mb");
      return mb > 2 * evidence.limits.diskMb + 8 ? `${mb} MB written` : undefined;
    },
  },
  {
    id: "R14",
    threat: "disk",
    title: "20,000 empty files",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs');
          let files = 0;
          try { for (; files < 20000; files++) fs.closeSync(fs.openSync(input.mark + files, 'w')) } catch {}
          return { files }`,
        wallMs: 60_000,
        ends: ["ok", "disk_limit"],
      },
    ],
    gotOut: (evidence) =>
      numberOf(evidence, "files") > 10_000 ? `${numberOf(evidence, "files")} files` : undefined,
  },
  {
    id: "R15",
    threat: "descriptors",
    title: "3000 open files",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          let files = 0;
          try { for (; files < 3000; files++) req('fs').openSync('/dev/null', 'r') } catch {}
          return { files }`,
        ends: ["ok"],
      },
      { runtime: "node", code: "return 'still here'", ends: ["ok"] },
    ],
    gotOut: (evidence) =>
      numberOf(evidence, "files") > 1_024 ? `${numberOf(evidence, "files")} open files` : undefined,
  },
];

/** Attacks on what the machine has: time, memory, processes, disk. */
export const resourceAttacks: readonly AttackCase[] = [
  ...loops,
  ...memory,
  ...processes,
  ...floods,
  ...files,
];
