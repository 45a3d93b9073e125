import { once } from "node:events";
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import {
  type OpenSandboxOptions,
  type Sandbox,
  type SandboxEvent,
  type SandboxProgram,
  type SandboxRequest,
  type SandboxResult,
  type SandboxTier,
} from "./index.ts";
import { descendantsOf, isAlive, processes } from "./process-table.fixture.ts";
import {
  buildLauncher,
  hasProgram,
  makePlace,
  openTier,
  removePlace,
} from "./sandbox-place.fixture.ts";

const patience = { timeout: 120_000, interval: 20 };
const never = new AbortController().signal;
const place = makePlace();
const launcherPath = buildLauncher(place);
const here: SandboxTier[] = [
  ...(hasProgram("bwrap") ? (["bwrap"] as const) : []),
  ...(launcherPath === undefined ? [] : (["sbx"] as const)),
];
/** `npm test` runs programs in one of them, `npm run test:all` in each. */
const tiers = process.env["LARKLINE_LONG_TESTS"] === "1" ? here : here.slice(0, 1);
afterAll(() => removePlace(place));

function optionsOf(tier: SandboxTier, more: OpenSandboxOptions = {}): OpenSandboxOptions {
  return {
    directory: join(place, tier),
    ...(launcherPath === undefined ? {} : { launcherPath }),
    ...more,
  };
}

it("this host has a tier to test", () => {
  expect(tiers).not.toEqual([]);
});

describe.each(tiers)("a program in %s", (tier) => {
  let sandbox: Sandbox;
  const events: SandboxEvent[] = [];

  beforeAll(async () => {
    sandbox = await openTier(tier, optionsOf(tier, { onEvent: (event) => events.push(event) }));
  });
  afterAll(async () => {
    await sandbox.close();
    expect(readdirSync(join(place, tier))).toEqual([]);
    expect(events).toEqual([]);
  });

  async function run(
    program: SandboxProgram,
    more: Partial<SandboxRequest> = {},
  ): Promise<SandboxResult> {
    return await sandbox.run({ program, signal: never, ...more });
  }
  const node = async (code: string, more?: Partial<SandboxRequest>): Promise<SandboxResult> =>
    await run({ runtime: "node", code, input: { city: "上海" } }, more);
  const python = async (code: string, more?: Partial<SandboxRequest>): Promise<SandboxResult> =>
    await run({ runtime: "python", code, input: { city: "上海" } }, more);
  const bash = async (code: string, more?: Partial<SandboxRequest>): Promise<SandboxResult> =>
    await run({ runtime: "bash", code, input: { city: "上海" } }, more);

  it("has its input and gives its result", async () => {
    expect(
      await node("return { seen: input.city, sum: await Promise.resolve(1 + 1) }"),
    ).toMatchObject({
      status: "ok",
      value: { seen: "上海", sum: 2 },
    });
    expect(await node("console.log('only output')")).toMatchObject({
      status: "ok",
      value: null,
      stdout: "only output\n",
    });
    expect(
      await node("const { basename } = await import('node:path'); return basename('/a/b')"),
    ).toMatchObject({
      value: "b",
    });
    expect(await bash('echo "$INPUT" >&2; echo 城; exit 3')).toMatchObject({
      status: "ok",
      value: 3,
      stdout: "城\n",
      stderr: '{"city":"上海"}\n',
    });
  });

  it.runIf(hasProgram("/usr/bin/python3"))(
    "has its input and gives its result in Python",
    async () => {
      expect(await python("print('hi')\nresult = {'seen': input['city']}")).toMatchObject({
        status: "ok",
        value: { seen: "上海" },
        stdout: "hi\n",
      });
      expect(await python("import sys\nsys.exit(0)")).toMatchObject({ status: "ok", value: null });
      expect(await python("import sys\nprint('bye')\nsys.exit(4)")).toMatchObject({
        status: "crashed",
        exitCode: 4,
        stdout: "bye\n",
      });
      expect(await python("import sys\nsys.exit('no such city')")).toMatchObject({
        exitCode: 1,
        stderr: "no such city\n",
      });
      const failed = await python("def f():\n    raise ValueError('no such city')\nf()");
      expect(failed).toMatchObject({ status: "error", exitCode: 1 });
      expect(failed.error).toMatch(/^ValueError: no such city\n.*line 3[^]*line 2/);
      expect(await python("result = {1, 2}")).toMatchObject({
        status: "error",
        error: expect.stringContaining("no JSON"),
      });
    },
  );

  it.runIf(hasProgram("/usr/bin/python3"))(
    "may ask how its own threads run, as the locks inside Node do",
    async () => {
      const asked = `import ctypes
libc = ctypes.CDLL(None)
libc.pthread_self.restype = ctypes.c_ulong
policy, param = ctypes.c_int(-1), ctypes.c_int(-1)
thread = ctypes.c_ulong(libc.pthread_self())
refused = libc.pthread_getschedparam(thread, ctypes.byref(policy), ctypes.byref(param))
result = [refused, policy.value]`;
      expect(await python(asked)).toMatchObject({ status: "ok", value: [0, 0], stderr: "" });
    },
  );

  it("gets the place where it failed", async () => {
    const failed = await node("\n\nnull.x");
    expect(failed).toMatchObject({ status: "error" });
    expect(failed.error).toMatch(/^TypeError: Cannot read.*\n.*program\.js:3/);
    expect(await node("return {")).toMatchObject({
      status: "error",
      error: expect.stringContaining("SyntaxError"),
    });
    expect(await node("return 1n")).toMatchObject({
      status: "error",
      error: expect.stringContaining("BigInt"),
    });
    expect(
      await node(
        "Promise.reject(new Error('unnoticed')); await new Promise((r) => setTimeout(r, 5000))",
      ),
    ).toMatchObject({
      status: "error",
      error: expect.stringContaining("unnoticed"),
    });
  });

  it("sends progress and output while it runs", async () => {
    const heard: unknown[] = [];
    const result = await node(
      "console.log('one'); progress(0.25, 'a quarter'); console.error('城'); return 1",
      {
        onProgress: (fraction, detail) => heard.push([fraction, detail]),
        onOutput: (stream, text) => heard.push([stream, text]),
      },
    );
    expect(result.status).toBe("ok");
    expect(heard).toHaveLength(3);
    expect(heard).toEqual(
      expect.arrayContaining([
        [0.25, "a quarter"],
        ["stdout", "one\n"],
        ["stderr", "城\n"],
      ]),
    );
  });

  it("gets few variables and those it is given, none of this process", async () => {
    vi.stubEnv("REDIS_URL", "redis://secret");
    const { value } = await node("return process.env", { env: { CITY: "上海" } });
    vi.unstubAllEnvs();
    expect(value).toMatchObject({ CITY: "上海", TZ: "UTC", LANG: "C.UTF-8" });
    expect(JSON.stringify(value)).not.toContain("secret");
    expect(await bash('echo "$CITY"', { env: { CITY: "两 行\n2" } })).toMatchObject({
      stdout: "两 行\n2\n",
    });
  });

  it("gets files and leaves files", async () => {
    const files = [
      { name: "in/a.txt", bytes: Buffer.from("given") },
      { name: "b.txt", bytes: Buffer.from("changed") },
    ];
    const code = `
      const fs = require("node:fs");
      fs.writeFileSync("b.txt", fs.readFileSync("in/a.txt", "utf8") + "!");
      fs.mkdirSync("out/deep", { recursive: true });
      fs.writeFileSync("out/deep/c.bin", Buffer.from([0, 255]));
      fs.symlinkSync("/etc/passwd", "link");
      fs.linkSync("out/deep/c.bin", "second");
      require("node:child_process").execFileSync("mkfifo", ["pipe"]);
      fs.mkdirSync("shut"); fs.writeFileSync("shut/x", "x"); fs.chmodSync("shut", 0);
    `;
    const { status, error, files: left, skipped } = await run({ runtime: "node", code, files });
    expect({ status, error }).toEqual({ status: "ok", error: undefined });
    const names = left.map(({ name, bytes }) => [name, Buffer.from(bytes).toString("latin1")]);
    expect(names).toContainEqual(["b.txt", "given!"]);
    expect(names.map(([name]) => name)).not.toContain("in/a.txt");
    const reasons = Object.fromEntries(skipped.map(({ name, reason }) => [name, reason]));
    expect(reasons).toMatchObject({
      link: "symbolic link",
      pipe: "not a regular file",
      second: "has several names",
    });
  });

  it("finds nothing of the one before, wherever that left it", async () => {
    const places = ["/tmp", "/var/tmp", "/dev/shm", "."];
    const leave = `for (const d of ${JSON.stringify(places)}) try { require("node:fs").writeFileSync(d + "/left-behind", "x") } catch {}`;
    const find = `return ${JSON.stringify(places)}.filter((d) => require("node:fs").existsSync(d + "/left-behind"))`;
    expect(await node(`${leave}; globalThis.left = 1`)).toMatchObject({ status: "ok" });
    for (let i = 0; i < 4; i += 1) {
      expect(await node(find)).toMatchObject({ status: "ok", value: [] });
    }
  });

  it("is stopped at the end of its time, and everything it started with it", async () => {
    const marker = `3600.${process.pid}${tier.length}`;
    const startedMs = performance.now();
    const code = `for i in 1 2 3; do setsid sleep ${marker} & done; (setsid sleep ${marker} &); trap '' TERM; while :; do :; done`;
    const result = await bash(code, { limits: { wallMs: 400 } });
    expect(result).toMatchObject({ status: "timeout", error: expect.stringContaining("400 ms") });
    expect(performance.now() - startedMs).toBeLessThan(30_000);
    expect(processes().filter(({ command }) => command.includes(marker))).toEqual([]);
  });

  it("is stopped when it is cancelled, and not begun when that was earlier", async () => {
    const stop = new AbortController();
    const result = await bash("echo started; sleep 3600", {
      signal: stop.signal,
      onOutput: () => stop.abort(),
    });
    expect(result).toMatchObject({ status: "cancelled", stdout: "started\n" });
    expect(await bash("echo started", { signal: AbortSignal.abort() })).toMatchObject({
      status: "cancelled",
      stdout: "",
    });
  });

  it.each([
    [
      "oom",
      "const all = []; for (;;) all.push(new Uint8Array(16 << 20).fill(1))",
      { memoryMb: 128, wallMs: 20_000 },
    ],
    ["oom", "const all = []; for (;;) all.push({ a: 1 })", { memoryMb: 64, wallMs: 20_000 }],
    [
      "output_limit",
      "require('node:fs').writeSync(1, 'x'.repeat(300_000)); for (;;);",
      { outputBytes: 200_000 },
    ],
    ["protocol", "return 'x'.repeat(100_000)", { resultBytes: 50_000 }],
    ["protocol", "require('node:fs').writeSync(3, 'no frame at all'); for (;;);", {}],
    ["crashed", "process.exit(0)", {}],
    ["crashed", "process.exit(3)", {}],
    ["crashed", "process.abort()", {}],
    ["timeout", "for (;;);", { cpuSeconds: 1, wallMs: 20_000 }],
    ["error", "require('node:fs').writeFileSync('f', Buffer.alloc(3 << 20))", { diskMb: 2 }],
  ] as const)("ends as %s when it runs %s", async (status, code, limits) => {
    const result = await node(code, { limits });
    expect(result).toMatchObject({ status, error: expect.any(String) });
    expect(result.error).not.toContain(place);
    expect(result.value).toBeUndefined();
  });

  it("keeps head and tail of what it writes", async () => {
    const { stdout, status } = await bash("echo first; seq 1 50000; echo last");
    expect(status).toBe("ok");
    expect(stdout).toMatch(
      /^first\n1\n2\n[^]*\.\.\. \d+ bytes left out \.\.\.[^]*\n50000\nlast\n$/,
    );
    expect(stdout.length).toBeLessThan(70_000);
  });

  it("is not begun when its request makes no sense", async () => {
    const bad: [Partial<SandboxRequest>, string][] = [
      [{ limits: { memoryMb: 31 } }, "memoryMb"],
      [{ limits: { wallMs: Number.NaN } }, "wallMs"],
      [{ env: { "A=B": "x" } }, "A=B"],
      [{ env: { LD_PRELOAD: "x" } }, "LD_PRELOAD"],
      [{ program: { runtime: "node", code: "", input: 1n } }, "input"],
      [{ program: { runtime: "bash", code: "echo \0" } }, "zero byte"],
      [
        {
          program: {
            runtime: "bash",
            code: "",
            files: [{ name: "../x", bytes: Buffer.from("x") }],
          },
        },
        "../x",
      ],
      [
        {
          program: {
            runtime: "bash",
            code: "",
            files: [{ name: "/etc/x", bytes: Buffer.from("x") }],
          },
        },
        "/etc/x",
      ],
      [{ program: { runtime: "node", module: "/x", readable: ["relative"] } }, "relative"],
      [
        { program: { runtime: "node", module: "/x", readable: ["/does/not/exist"] } },
        "/does/not/exist",
      ],
      [{ network: { allow: [] } }, "network"],
    ];
    for (const [request, words] of bad) {
      const result = await bash("echo begun", request);
      expect(result).toMatchObject({
        status: "refused",
        stdout: "",
        error: expect.stringContaining(words),
      });
    }
  });

  it("can be a module of ours, in TypeScript, that reads what it is shown and nothing else", async () => {
    const shown = join(place, `${tier}-shown`);
    const hidden = join(place, `${tier}-hidden`);
    for (const directory of [shown, hidden]) mkdirSync(directory);
    writeFileSync(join(hidden, "secret.txt"), "secret");
    writeFileSync(
      join(shown, "helper.ts"),
      "export const double = (value: number): number => value * 2;\n",
    );
    writeFileSync(
      join(shown, "tool.ts"),
      `import { readFileSync, writeFileSync } from "node:fs";
       import { double } from "./helper.ts";
       const reads = (path: string): string => { try { return readFileSync(path, "utf8"); } catch { return "no"; } };
       const writes = (path: string): string => { try { writeFileSync(path, "x"); return "yes"; } catch { return "no"; } };
       export async function main(input: { value: number }, { progress }: { progress(fraction: number, detail: string): void }) {
         progress(1, "done");
         return { doubled: double(input.value), secret: reads(${JSON.stringify(join(hidden, "secret.txt"))}), wrote: writes(${JSON.stringify(join(shown, "x"))}) };
       }`,
    );
    const heard: unknown[] = [];
    const result = await run(
      { runtime: "node", module: join(shown, "tool.ts"), readable: [shown], input: { value: 21 } },
      { onProgress: (...progress) => heard.push(progress) },
    );
    expect(result).toMatchObject({
      status: "ok",
      value: { doubled: 42, secret: "no", wrote: "no" },
    });
    expect(heard).toEqual([[1, "done"]]);
  });

  it.runIf(process.getuid?.() === 0)(
    "reads what is shut to its user when it is shown it, or gets the reason why not",
    async () => {
      const shut = join(place, `${tier}-shut`);
      mkdirSync(join(shut, "shown"), { recursive: true });
      chmodSync(shut, 0o700);
      const module = join(shut, "shown", "tool.mjs");
      writeFileSync(
        module,
        `import { writeFileSync } from "node:fs";
       export const main = () => { try { writeFileSync(${JSON.stringify(module)}, ""); return "wrote"; } catch { return "read"; } };`,
      );
      const result = await run({ runtime: "node", module, readable: [join(shut, "shown")] });
      if (tier === "bwrap") expect(result).toMatchObject({ status: "ok", value: "read" });
      else {
        expect(result).toMatchObject({
          status: "refused",
          error: expect.stringContaining("shut to other users"),
        });
      }
    },
  );

  it("waits for a place, and leaves the queue when it is cancelled", async () => {
    const narrow = await openTier(tier, optionsOf(tier, { slots: 1 }));
    const stop = new AbortController();
    const gone = new AbortController();
    const program = { runtime: "bash", code: "sleep 3600" } as const;
    const started = Promise.withResolvers<void>();
    const first = narrow.run({
      program: { runtime: "bash", code: "echo started; sleep 3600" },
      signal: stop.signal,
      onOutput: () => started.resolve(),
    });
    await started.promise;
    const second = narrow.run({ program, signal: gone.signal });
    const third = narrow.run({ program: { runtime: "bash", code: "exit 5" }, signal: never });
    gone.abort();
    expect(await second).toMatchObject({ status: "cancelled" });
    stop.abort();
    expect(await first).toMatchObject({ status: "cancelled" });
    expect(await third).toMatchObject({ status: "ok", value: 5 });
    const last = narrow.run({ program, signal: never });
    await narrow.close();
    expect(await last).toMatchObject({ status: "cancelled" });
    expect(await narrow.run({ program, signal: never })).toMatchObject({ status: "refused" });
    await narrow.close();
  });

  it("leaves no descriptor, process or zombie behind", async () => {
    const before = readdirSync("/proc/self/fd").length;
    for (let i = 0; i < 30; i += 1) {
      const program = {
        runtime: "bash",
        code: i % 3 === 0 ? "sleep 3600" : "(setsid sleep 3600 &)",
      } as const;
      await sandbox.run({ program, limits: { wallMs: 100 }, signal: never });
    }
    await vi.waitFor(
      () => expect(readdirSync("/proc/self/fd").length).toBeLessThanOrEqual(before + 2),
      patience,
    );
    expect(
      descendantsOf(process.pid).filter(
        ({ state, command }) => state === "Z" || /sbx|bwrap/.test(command),
      ),
    ).toEqual([]);
  });

  it("can be a command that lives on", async () => {
    const code =
      "process.stdin.on('data', (d) => process.stdout.write(d + process.env.API_KEY)).on('end', () => process.exit(3))";
    const session = await sandbox.open({
      command: "node",
      args: ["-e", code],
      env: { API_KEY: "key-1" },
      readable: [],
    });
    session.stdin.write("hello ");
    const [answer] = (await once(session.stdout, "data")) as [Buffer];
    expect(answer.toString()).toBe("hello key-1");
    expect(processes().filter(({ command }) => command.includes("key-1"))).toEqual([]);
    session.stdin.end();
    expect(await session.ended).toBe("It ended with exit code 3.");
    await session.close();
  });

  it("that lives on ends with its session, and all it started", async () => {
    const marker = `3601.${process.pid}`;
    const session = await sandbox.open({
      command: "bash",
      args: ["-c", `setsid sleep ${marker} & echo started; sleep ${marker}`],
      readable: [],
    });
    await once(session.stdout, "data");
    const started = processes().filter(({ command }) => command.includes(marker));
    expect(started.length).toBeGreaterThan(0);
    await session.close();
    expect(started.filter(({ id }) => isAlive(id))).toEqual([]);
    expect(await session.ended).toBe("It was closed.");
    await session.close();
    await expect(sandbox.open({ command: "true", args: [], readable: ["no"] })).rejects.toThrow(
      "no",
    );
  });
});

describe.runIf(tiers.includes("bwrap"))("a program with a network", () => {
  let sandbox: Sandbox;
  beforeAll(async () => {
    sandbox = await openTier("bwrap", optionsOf("bwrap"));
  });
  afterAll(async () => {
    await sandbox.close();
  });

  const fetching = "fetch('http://denied.test/').catch(() => {})";
  const request = "GET http://denied.test/ HTTP/1.1\\r\\nHost: denied.test\\r\\n\\r\\n";
  it.each([
    ["node", `return (await ${fetching})?.status`],
    [
      "node",
      `require("node:child_process").execFileSync(process.execPath, ["-e", ${JSON.stringify(fetching)}])`,
    ],
    [
      "bash",
      `exec 9<>/dev/tcp/127.0.0.1/\${HTTP_PROXY##*:}; printf '${request}' >&9; head -n 1 <&9`,
    ],
    ...(hasProgram("/usr/bin/python3")
      ? ([
          [
            "python",
            "import urllib.request\nurllib.request.urlopen('http://denied.test/', timeout=9)",
          ],
        ] as const)
      : []),
  ] as const)("reaches only the proxy, from %s: %s", async (runtime, code) => {
    const network = { allow: ["allowed.test"] };
    const { denied } = await sandbox.run({ program: { runtime, code }, network, signal: never });
    expect(denied).toEqual([expect.stringContaining("denied: denied.test:80")]);
  });

  it("is refused for a policy that names no host", async () => {
    const program = { runtime: "bash", code: "" } as const;
    expect(
      await sandbox.run({ program, network: { allow: ["no host at all"] }, signal: never }),
    ).toMatchObject({
      status: "refused",
    });
  });
});

describe.runIf(tiers.includes("sbx"))("a tier without network", () => {
  it("refuses a program that needs one, and says what would help", async () => {
    const sandbox = await openTier("sbx", optionsOf("sbx"));
    const program = { runtime: "bash", code: "" } as const;
    const result = await sandbox.run({
      program,
      network: { allow: ["api.example.com"] },
      signal: never,
    });
    expect(result).toMatchObject({
      status: "refused",
      error: expect.stringContaining("bubblewrap"),
    });
    await sandbox.close();
  });

  it("tries a start that failed once more, on another slot", async () => {
    const flaky = join(place, "flaky");
    const state = join(place, "state");
    const script = `#!/bin/sh\nif [ -e "${state}" ]; then rm "${state}"; exit 9; fi\nexec "${launcherPath}" "$@"\n`;
    writeFileSync(flaky, script);
    chmodSync(flaky, 0o755);
    const events: SandboxEvent[] = [];
    const sandbox = await openTier(
      "sbx",
      optionsOf("sbx", { launcherPath: flaky, onEvent: (event) => events.push(event) }),
    );
    writeFileSync(state, "");
    expect(
      await sandbox.run({ program: { runtime: "bash", code: "exit 6" }, signal: never }),
    ).toMatchObject({
      status: "ok",
      value: 6,
    });
    expect(events).toMatchObject([{ event: "boot_failed" }]);
    await sandbox.close();
  });
});
