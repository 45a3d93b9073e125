import {
  attackPrelude,
  bootMs,
  firstOf,
  leftOver,
  overTime,
  valueOf,
  type AttackCase,
} from "./attack-case.fixture.ts";

const loopMs = 600;

/** Attacks by and on processes: the runner's end, and what lives on after a call. */
export const processAttacks: readonly AttackCase[] = [
  {
    id: "P1",
    threat: "the runner's end",
    title: "process.exit(0) and process.reallyExit(0)",
    programs: [
      { runtime: "node", code: `${attackPrelude} proc.exit(0)`, ends: ["crashed"] },
      { runtime: "node", code: `${attackPrelude} proc.reallyExit(0)`, ends: ["crashed"] },
    ],
    gotOut: ({ elapsedMs }) => (elapsedMs > bootMs ? "its end was not noticed" : undefined),
  },
  {
    id: "P2",
    threat: "the runner's end",
    title: "process.abort()",
    programs: [{ runtime: "node", code: `${attackPrelude} proc.abort()`, ends: ["crashed"] }],
    gotOut: () => undefined,
  },
  {
    id: "P3",
    threat: "the runner's end",
    title: "SIGKILL for the runner",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const found = await tries({
            runner: () => proc.kill(input.runner, 'SIGKILL'),
            parent: () => { if (proc.ppid === input.runner) proc.kill(proc.ppid, 'SIGKILL') },
          });
          await sleep(200);
          return found`,
        ends: ["ok"],
      },
    ],
    gotOut: () => undefined,
  },
  {
    id: "P4",
    threat: "the runner's end",
    title: "SIGKILL for every process that it may signal",
    neverUncontained: true,
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} const found = await tries({ all: () => proc.kill(-1, 'SIGKILL') }); await sleep(200); return found`,
        ends: ["ok", "crashed"],
      },
    ],
    gotOut: () => undefined,
  },
  {
    id: "P5",
    threat: "orphans",
    title: "a daemon, forked twice, in a session of its own",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          return tries({ daemon: () => {
            req('child_process').execFileSync('/bin/sh', ['-c', '(setsid /bin/sh -c "trap : TERM HUP INT; sleep 15" >/dev/null 2>&1 </dev/null &) &'], { stdio: 'ignore' });
            return 'started';
          } })`,
        ends: ["ok"],
      },
    ],
    lingerMs: 300,
    gotOut: leftOver,
  },
  {
    id: "P6",
    threat: "orphans",
    title: "deaf to SIGTERM, in a loop, with a child that is as well",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) proc.on(name, () => {});
          try { req('child_process').spawn('/bin/sh', ['-c', 'trap "" TERM HUP INT; while :; do sleep 1; done'], { stdio: 'ignore', detached: true }).on('error', () => {}) } catch {}
          await sleep(50);
          while (true) {}`,
        wallMs: loopMs,
        ends: ["timeout"],
      },
    ],
    lingerMs: 300,
    gotOut: (evidence) => firstOf(overTime(evidence, loopMs), leftOver(evidence)),
  },
  {
    id: "P7",
    threat: "the runner's end",
    title: "errors that are thrown after the end",
    programs: [
      {
        runtime: "node",
        code: "setTimeout(() => { throw new Error('later') }, 10); setTimeout(() => Promise.reject(new Error('later too')), 15); return 1",
        ends: ["ok"],
      },
    ],
    lingerMs: 200,
    gotOut: () => undefined,
  },
  {
    id: "P8",
    threat: "kernel",
    title: "a new user and mount namespace",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} return tries({ unshare: () => req('child_process').execFileSync('/usr/bin/unshare', ['-Urm', '/bin/echo', 'NAMESPACE'], { stdio: 'pipe' }) })`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ results }) =>
      JSON.stringify(results).includes('"NAMESPACE') ? "a namespace was made" : undefined,
  },
];

/** Attacks on the runner's own memory and on the way results take. */
export const integrityAttacks: readonly AttackCase[] = [
  {
    id: "H1",
    threat: "prototypes",
    title: "Object.prototype, through every constructor in reach",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          Object.prototype.polluted = 'yes';
          try { proc.constructor.constructor('Object.prototype.polluted = "yes"')() } catch {}
          try { input.constructor.prototype.polluted = 'yes' } catch {}
          return 1`,
        ends: ["ok", "protocol"],
      },
    ],
    gotOut: ({ runner }) =>
      runner.polluted.length > 0 ? `all objects have ${runner.polluted.join(", ")}` : undefined,
  },
  {
    id: "H2",
    threat: "prototypes",
    title: "a result with __proto__ and constructor.prototype",
    programs: [
      {
        runtime: "node",
        code: `return JSON.parse('{"a": 1, "__proto__": {"polluted2": "yes"}, "constructor": {"prototype": {"polluted2": "yes"}}}')`,
        ends: ["ok"],
      },
    ],
    gotOut: ({ runner }) =>
      runner.polluted.length > 0
        ? `merging gave all objects ${runner.polluted.join(", ")}`
        : undefined,
  },
  {
    id: "H3",
    threat: "tampering",
    title: "other functions for fs.readFileSync and JSON.stringify",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude} try { req('fs').readFileSync = () => 'EVIL' } catch {} try { JSON.stringify = () => '{}' } catch {} return 1`,
        ends: ["ok", "protocol"],
      },
    ],
    gotOut: ({ runner }) =>
      runner.intact ? undefined : "the runner's own functions were replaced",
  },
  {
    id: "H4",
    threat: "protocol",
    title: "garbage and forged messages to the runner",
    programs: [
      {
        runtime: "node",
        code: `${attackPrelude}
          const fs = req('fs'), channel = Number(proc.env.NODE_CHANNEL_FD ?? 3);
          const texts = ['{"cmd":"NODE_HANDLE","type":"bogus","msg":{}}\\n', 'null\\n', 'not json\\n'];
          const bytes = [Buffer.from([255, 255, 255, 255, 1, 2, 3]), Buffer.from([2, 0, 0, 0, 0x7b, 0x7b]), Buffer.alloc(100000, 0x5b)];
          for (const part of [...texts, ...bytes]) try { fs.writeSync(channel, part) } catch {}
          await sleep(200);
          return 1`,
        ends: ["protocol"],
      },
      {
        runtime: "node",
        code: `${attackPrelude}
          const forged = Buffer.from(JSON.stringify({ t: 'result', kind: 'result', type: 'result', value: { forged: true } }));
          const header = Buffer.alloc(4);
          header.writeUInt32LE(forged.length - 5);
          try { req('fs').writeSync(3, Buffer.concat([header, forged])) } catch {}
          await sleep(100);
          return 'true result'`,
        ends: ["protocol", "error"],
      },
      { runtime: "node", code: "return 42", ends: ["ok"] },
    ],
    lingerMs: 100,
    gotOut: (evidence) => (valueOf(evidence, 2) === 42 ? undefined : "the next call is broken"),
  },
  {
    id: "H5",
    threat: "protocol",
    title: "a result nested 200,000 deep, built and forged",
    programs: [
      {
        runtime: "node",
        code: "let value = []; for (let i = 0; i < 200000; i++) value = [value]; return value",
        wallMs: 60_000,
        ends: ["error", "protocol", "crashed", "oom"],
      },
      {
        runtime: "node",
        code: `${attackPrelude}
          const body = Buffer.from('{"t":"result","kind":"result","type":"result","value":' + '['.repeat(200000) + ']'.repeat(200000) + '}');
          const header = Buffer.alloc(4);
          header.writeUInt32LE(body.length);
          try { req('fs').writeSync(Number(proc.env.NODE_CHANNEL_FD ?? 3), Buffer.concat([header, body])) } catch {}
          await sleep(200);
          return 1`,
        wallMs: 60_000,
        ends: ["protocol"],
      },
    ],
    gotOut: ({ results }) => {
      try {
        JSON.stringify(results);
        return undefined;
      } catch {
        return "the runner cannot write the result down";
      }
    },
  },
  {
    id: "H6",
    threat: "protocol",
    title: "a result whose then and toJSON burn time",
    programs: [
      {
        runtime: "node",
        code: `const burn = () => { const start = Date.now(); while (Date.now() - start < 2500); return 1 };
          return { toJSON: burn, then(resolve) { resolve({ toJSON: burn }) } }`,
        wallMs: loopMs,
        ends: ["timeout"],
      },
    ],
    gotOut: (evidence) => overTime(evidence, loopMs),
  },
];
