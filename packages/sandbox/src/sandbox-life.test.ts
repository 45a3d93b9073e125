import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { groupParents } from "./control-group.ts";
import {
  openSandbox,
  probeTiers,
  type Sandbox,
  type SandboxEvent,
  type SandboxResult,
  type SandboxTier,
} from "./index.ts";
import { descendantsOf, processes } from "./process-table.fixture.ts";
import {
  buildLauncher,
  hasProgram,
  makePlace,
  openTier,
  removePlace,
} from "./sandbox-place.fixture.ts";
import { seccompProgram } from "./seccomp.ts";
import { architectureOf } from "./system-call.ts";

const patience = { timeout: 120_000, interval: 20 };
const never = new AbortController().signal;
const place = makePlace();
const launcherPath = buildLauncher(place);
const hasBwrap = hasProgram("bwrap");
const tiers: SandboxTier[] = [
  ...(hasBwrap ? (["bwrap"] as const) : []),
  ...(launcherPath === undefined ? [] : (["sbx"] as const)),
];
const isRoot = process.getuid?.() === 0;

let opened: Sandbox[] = [];
let parents: ChildProcess[] = [];
let count = 0;

function newDirectory(): string {
  count += 1;
  return join(place, `d${count}`);
}
async function open(...args: Parameters<typeof openTier>): Promise<Sandbox> {
  const sandbox = await openTier(...args);
  opened.push(sandbox);
  return sandbox;
}
afterEach(async () => {
  for (const parent of parents) parent.kill("SIGKILL");
  await Promise.all(opened.map(async (sandbox) => await sandbox.close()));
  opened = [];
  parents = [];
});
afterAll(() => removePlace(place));

const orphanProgram = fileURLToPath(new URL("./sandbox-orphan.fixture.ts", import.meta.url));
const parentProgram = fileURLToPath(new URL("./sandbox-parent.fixture.ts", import.meta.url));

/** Starts a process with a sandbox of its own and hands over its lines. */
function startParent(options: {
  before?: string[];
  tiers?: SandboxTier[];
  directory: string;
  mark?: string;
  shown?: string;
}): {
  parent: ChildProcess;
  line: () => Promise<string>;
} {
  const args = [
    (options.tiers ?? tiers).join(),
    options.directory,
    launcherPath ?? "",
    options.mark ?? "",
    options.shown ?? "",
  ];
  const [command = "", ...rest] = [
    ...(options.before ?? []),
    process.execPath,
    parentProgram,
    ...args,
  ];
  const parent = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  parents.push(parent);
  const lines = createInterface({ input: parent.stdout })[Symbol.asyncIterator]();
  return { parent, line: async () => String((await lines.next()).value) };
}

describe.each(tiers)("a parent of %s that is killed", (tier) => {
  it("takes everything inside along, and its successor removes what is left", async () => {
    const directory = newDirectory();
    const mark = `36${count}.${process.pid}`;
    // Where that is possible, programs see it although it is shut to their users: through a mount.
    const shut = mkdtempSync(join(place, "shut-"));
    const shown = join(shut, "shown");
    mkdirSync(shown);
    writeFileSync(join(shown, "kept.txt"), "kept");
    if (tier === "sbx") chmodSync(shut, 0o755);
    const { parent, line } = startParent({ tiers: [tier], directory, mark, shown });
    expect(JSON.parse(await line())).toMatchObject({ tier });
    expect(await line()).toBe("running");
    await vi.waitFor(() => expect(readdirSync(directory)).toHaveLength(1), patience);
    const same = ({ id, beganAt }: { id: number; beganAt: string }): string =>
      `${id} since ${beganAt}`;
    // The launchers, three marked programs of the shell and that of the session.
    let family = new Set<string>();
    await vi.waitFor(() => {
      const rows = descendantsOf(parent.pid ?? 0);
      expect(
        rows.filter(({ command }) => command === `sleep ${mark}`).length,
      ).toBeGreaterThanOrEqual(4);
      family = new Set(rows.map(same));
    }, patience);
    const inside = (): string[] =>
      processes()
        .filter(
          (row) =>
            row.state !== "Z" && (family.has(same(row)) || row.command.includes(`sleep ${mark}`)),
        )
        .map((row) => `${same(row)}: ${row.command}`);
    expect(inside().length).toBeGreaterThan(3);

    parent.kill("SIGKILL");
    await once(parent, "exit");
    await vi.waitFor(() => expect(inside()).toEqual([]), patience);
    const [left = ""] = readdirSync(directory);
    expect(readdirSync(join(directory, left))).toContain("slot-0");

    const events: SandboxEvent[] = [];
    const sandbox = await open(tier, {
      directory,
      ...(launcherPath === undefined ? {} : { launcherPath }),
      onEvent: (event) => events.push(event),
    });
    expect(events).toEqual([{ event: "remains_removed", detail: "of 1 that did not close" }]);
    expect(readdirSync(directory)).toHaveLength(1);
    await sandbox.close();
    expect(readdirSync(directory)).toEqual([]);
    const groups = groupParents().flatMap((at) => (existsSync(at) ? readdirSync(at) : []));
    expect(groups.filter((name) => name.startsWith(`larkline-${left}-`))).toEqual([]);
    expect(readFileSync("/proc/self/mountinfo", "utf8")).not.toContain(directory);
    expect(readFileSync(join(shown, "kept.txt"), "utf8")).toBe("kept");
  });
});

describe("a run that waits for a place", () => {
  const program = { runtime: "bash", code: "exit 0" } as const;

  it("begins when it has one, once; where it may not begin any more nothing is run", async () => {
    const [tier = "bwrap"] = tiers;
    const sandbox = await open(tier, {
      directory: newDirectory(),
      slots: 1,
      ...(launcherPath === undefined ? {} : { launcherPath }),
    });
    const begun: string[] = [];
    const begin = async (who: string, may = true): Promise<boolean> =>
      await Promise.resolve(begun.push(who) > 0 && may);
    const release = new AbortController();
    const first = sandbox.run({
      program: { runtime: "bash", code: "sleep 600" },
      signal: release.signal,
      begin: async () => await begin("first"),
    });
    await vi.waitFor(() => expect(begun).toEqual(["first"]), patience);
    const late = new AbortController();
    const second = sandbox.run({
      program,
      signal: late.signal,
      begin: async () => await begin("second"),
    });
    const third = sandbox.run({
      program,
      signal: never,
      begin: async () => await begin("third", false),
    });
    const fourth = sandbox.run({
      program,
      signal: never,
      begin: async () => await begin("fourth"),
    });
    late.abort();
    expect(await second).toMatchObject({ status: "cancelled" });
    release.abort();
    expect(await first).toMatchObject({ status: "cancelled" });
    expect(await third).toMatchObject({
      status: "cancelled",
      error: "The run was not to begin any more.",
    });
    expect(await fourth).toMatchObject({ status: "ok", value: 0 });
    expect(begun).toEqual(["first", "third", "fourth"]);
  });
});

describe("directories", () => {
  it("of a sandbox that lives are left alone by the next one", async () => {
    const directory = newDirectory();
    const [tier = "bwrap"] = tiers;
    const options = { directory, ...(launcherPath === undefined ? {} : { launcherPath }) };
    const first = await open(tier, options);
    const second = await open(tier, options);
    const numbers = readdirSync(directory);
    expect(numbers).toHaveLength(2);
    // Nor does one in another directory of this host take their numbers: users and control groups go with them.
    for (const number of numbers) {
      const other = createServer().listen(
        `\0larkline-sandbox-${process.getuid?.() ?? 0}-${number}`,
      );
      await expect(once(other, "listening")).rejects.toMatchObject({ code: "EADDRINUSE" });
    }
    for (const sandbox of [first, second]) {
      expect(
        await sandbox.run({ program: { runtime: "bash", code: "exit 4" }, signal: never }),
      ).toMatchObject({
        value: 4,
      });
    }
  });

  it("that others can change are not used", async () => {
    const directory = newDirectory();
    mkdirSync(directory);
    chmodSync(directory, 0o777);
    const opening = await openSandbox({ directory });
    expect(opening).toMatchObject({ ok: false });
    for (const { reason } of opening.findings) expect(reason).toContain("another user");
  });

  it("that hold other things are left alone", async () => {
    const directory = newDirectory();
    mkdirSync(join(directory, "17", "notes"), { recursive: true });
    writeFileSync(join(directory, "letter.txt"), "kept");
    const { mode } = statSync(directory);
    const opening = await openSandbox({ directory });
    expect(opening.findings[0]?.reason).toContain("letter.txt");
    expect(readdirSync(directory)).toEqual(["17", "letter.txt"]);
    expect(statSync(directory).mode).toBe(mode);
  });

  it("too long for a socket in them are named", async () => {
    const opening = await openSandbox({ directory: join(place, "x".repeat(100)) });
    expect(opening.findings[0]?.reason).toContain("80 bytes");
  });
});

describe("findings", () => {
  it("say of each accepted tier whether it holds, and why not", async () => {
    const findings = await probeTiers({
      directory: newDirectory(),
      launcherPath: join(place, "missing"),
    });
    expect(findings.map(({ tier }) => tier)).toEqual(["bwrap", "sbx"]);
    expect(findings[1]).toMatchObject({
      holds: false,
      reason: expect.stringContaining("sbx/build.sh"),
    });
    for (const { holds, reason } of findings) expect(reason === "").toBe(holds);
  });

  it("are all there is when no accepted tier holds", async () => {
    const opening = await openSandbox({
      directory: newDirectory(),
      tiers: ["sbx"],
      launcherPath: "/bin/false",
    });
    expect(opening).toEqual({
      ok: false,
      findings: [{ tier: "sbx", holds: false, reason: expect.stringContaining("does not start") }],
    });
  });

  it("name an attack that got through", async () => {
    const leaky = join(place, "leaky");
    // A launcher that keeps nothing in.
    writeFileSync(leaky, '#!/bin/bash\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n', {
      mode: 0o755,
    });
    const [finding] = await probeTiers({
      directory: newDirectory(),
      tiers: ["sbx"],
      launcherPath: leaky,
    });
    expect(finding?.holds).toBe(false);
    for (const words of [
      "a file of the host: was read",
      "a service on loopback: was connected to",
      "an abstract socket",
      "a socket at a path",
    ]) {
      expect(finding?.reason).toContain(words);
    }
  });

  it("options out of range are refused before anything starts", async () => {
    for (const slots of [0, 0.5, 33]) {
      const directory = newDirectory();
      await expect(openSandbox({ directory, slots })).rejects.toThrow(RangeError);
      expect(existsSync(directory)).toBe(false);
    }
  });
});

function ordinaryUser(): { before: string[]; directory: string } {
  const directory = mkdtempSync(join(place, "user-"));
  const user = "61234";
  execFileSync("chown", [user, directory]);
  return {
    before: ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups", "--inh-caps=-all"],
    directory,
  };
}

/** Whether another user of this host could run the code under test. */
function isReadableByAll(path: string): boolean {
  for (let at = dirname(path); at !== "/"; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return false;
  }
  return (statSync(path).mode & 0o004) !== 0;
}

const canBeAnother =
  isRoot &&
  hasProgram("setpriv") &&
  isReadableByAll(parentProgram) &&
  isReadableByAll(process.execPath);

describe.runIf(canBeAnother).each(tiers)("%s as an ordinary user", (tier) => {
  it("holds without privileges", async () => {
    const { before, directory } = ordinaryUser();
    const { line, parent } = startParent({ before, tiers: [tier], directory });
    expect(JSON.parse(await line())).toEqual({
      tier,
      findings: [{ tier, holds: true, reason: "" }],
    });
    expect(JSON.parse(await line())).toMatchObject({
      status: "ok",
      value: [tier === "bwrap" ? 1_000 : 61_234, "hi\n"],
    });
    if (parent.exitCode === null) await once(parent, "exit");
    expect(readdirSync(directory)).toEqual([]);
  });
});

describe.runIf(canBeAnother && launcherPath !== undefined)("a supervisor that is killed", () => {
  it("leaves nothing to the next program, even where no other process finds what has escaped from it", () => {
    const { before, directory } = ordinaryUser();
    const [command = "", ...rest] = [
      ...before,
      process.execPath,
      orphanProgram,
      directory,
      launcherPath ?? "",
    ];
    const outcome: unknown = JSON.parse(execFileSync(command, rest, { encoding: "utf8" }));
    expect(outcome).toEqual({ left: [], next: ["ok", ""], events: ["slot_discarded"] });
  });
});

describe.runIf(hasProgram("python3"))("a directory whose holder cannot be asked", () => {
  it("counts as held: what lives is never removed", async () => {
    const directory = newDirectory();
    const held = join(directory, "17");
    mkdirSync(held, { recursive: true });
    // Connecting fails, but a process does hold the socket.
    const code =
      "import socket, sys, time; held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); held.bind(sys.argv[1]); print(1, flush=True); time.sleep(60)";
    const holder = spawn("python3", ["-c", code, join(held, "owner.sock")], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    parents.push(holder);
    await once(holder.stdout, "data");
    const findings = await probeTiers({
      directory,
      tiers: tiers.slice(0, 1),
      ...(launcherPath && { launcherPath }),
    });
    expect(findings).toMatchObject([{ holds: true }]);
    expect(readdirSync(directory)).toEqual(["17"]);
  });
});

describe.runIf(hasBwrap && launcherPath !== undefined)("a host without user namespaces", () => {
  it("gets the next tier, and the reasons why others were refused", async () => {
    const architecture = architectureOf(process.arch);
    if (architecture === undefined) throw new Error("no tier runs here");
    const filter = join(place, "no-namespaces");
    writeFileSync(
      filter,
      seccompProgram(architecture, { sockets: "loopback", isMemoryCounted: true, seesHost: false }),
    );
    // As in a container: the same files, a filter that refuses namespaces and mounts.
    const shut = `exec 9<"${filter}"; exec bwrap --dev-bind / / --cap-add ALL --seccomp 9 -- "$@"`;
    const { line } = startParent({
      before: ["/bin/bash", "-c", shut, "bash"],
      directory: newDirectory(),
    });
    const { tier, findings } = JSON.parse(await line()) as { tier: string; findings: unknown[] };
    expect(findings[0]).toMatchObject({
      tier: "bwrap",
      holds: false,
      reason: expect.stringContaining("does not start"),
    });
    expect(tier).toBe("sbx");
    expect(JSON.parse(await line())).toMatchObject({ status: "ok" });
  });
});

describe.each(tiers)("warm sandboxes of %s", (tier) => {
  const waiting = (): number[] =>
    descendantsOf(process.pid)
      .filter(
        ({ command, state }) =>
          state !== "Z" && /node\.cjs/.test(command) && !/bwrap|sbx|launcher/.test(command),
      )
      .map(({ id }) => id);

  it("are booted for what was run, used once, and replaced", async () => {
    const sandbox = await open(tier, {
      directory: newDirectory(),
      warm: 2,
      ...(launcherPath === undefined ? {} : { launcherPath }),
    });
    let wallMs = 20_000;
    const run = async (code: string): Promise<unknown> => {
      wallMs += 1; // what is watched from outside is no reason for a sandbox of another kind
      return (
        await sandbox.run({ program: { runtime: "node", code }, limits: { wallMs }, signal: never })
      ).value;
    };
    expect(waiting()).toEqual([]);
    expect(
      await run(
        "globalThis.left = 1; require('node:fs').writeFileSync('left', ''); return 'first'",
      ),
    ).toBe("first");
    await vi.waitFor(() => expect(waiting()).toHaveLength(2), patience);
    const ready = waiting();
    expect(await run("return [globalThis.left, require('node:fs').readdirSync('.')]")).toEqual([
      null,
      [],
    ]);
    await vi.waitFor(
      () => expect(waiting().filter((id) => !ready.includes(id))).toHaveLength(1),
      patience,
    );
    expect(waiting()).toHaveLength(2);
  });

  it("that died are not used, and all end with their sandbox", async () => {
    const sandbox = await open(tier, {
      directory: newDirectory(),
      warm: 2,
      ...(launcherPath === undefined ? {} : { launcherPath }),
    });
    const program = { runtime: "node", code: "return 7" } as const;
    expect(await sandbox.run({ program, signal: never })).toMatchObject({ status: "ok" });
    await vi.waitFor(() => expect(waiting()).toHaveLength(2), patience);
    for (const id of waiting()) process.kill(id, "SIGKILL");
    await vi.waitFor(() => expect(waiting()).toEqual([]), patience);
    expect(await sandbox.run({ program, signal: never })).toMatchObject({ status: "ok", value: 7 });
    await sandbox.close();
    expect(waiting()).toEqual([]);
  });
});

/** A tool's module that returns what it got when, and how often it was called. */
const countingModule = `
import { env } from "node:process";
import { existsSync, writeFileSync, writeSync } from "node:fs";
let told, toldMs, variable, calls = 0;
export function prepare(preparation) {
  if (preparation === "fails") throw new Error("nothing to load");
  if (preparation === "talks") writeSync(3, Buffer.from("\\u0010\\0\\0\\0" + '{"kind":"result"'));
  [told, toldMs, variable] = [preparation, Date.now(), env.GIVEN];
}
export function main(input) {
  calls += 1;
  const found = existsSync("left");
  writeFileSync("left", "");
  return { input, told, toldMs, variable, calls, found };
}
`;

/** A tool's module that says what compiled code it finds, and what happens to who would change it. */
const compiledModule = `
import { readdirSync, unlinkSync, writeFileSync } from "node:fs";
import { getCompileCacheDir } from "node:module";
import { join } from "node:path";
export function prepare() {}
export function main() {
  const directory = getCompileCacheDir();
  if (directory === undefined) return "none";
  const files = readdirSync(directory);
  const refused = [];
  const attempts = [
    () => writeFileSync(join(directory, "00000000"), ""),
    () => writeFileSync(join(directory, files[0]), ""),
    () => unlinkSync(join(directory, files[0])),
  ];
  for (const attempt of attempts) {
    try {
      attempt();
    } catch ({ code }) {
      refused.push(code);
    }
  }
  return { files: files.length, refused };
}
`;

interface Told {
  told: string;
  toldMs: number;
  variable: string;
  calls: number;
  found: boolean;
}

describe.each(tiers)("sandboxes of %s that are kept for a tool", (tier) => {
  const events: string[] = [];

  // One for all of these: opening one means to attack it, and what is kept is kept for one kind of programs alone.
  let sandbox: Sandbox;
  const module = join(place, `counting-${tier}.mjs`);
  beforeAll(async () => {
    writeFileSync(module, countingModule);
    const launcher = launcherPath === undefined ? {} : { launcherPath };
    const onEvent = ({ detail }: SandboxEvent): void => void events.push(detail);
    sandbox = await openTier(tier, { directory: newDirectory(), warm: 2, onEvent, ...launcher });
  });
  afterAll(async () => await sandbox.close());

  const run = async (
    preparation: string,
    variable = "one",
    wallMs = 60_000,
  ): Promise<SandboxResult> =>
    await sandbox.run({
      program: { runtime: "node", module, readable: [module], preparation, input: "上海" },
      env: { GIVEN: variable },
      limits: { wallMs },
      signal: never,
    });

  it("have loaded its module in its environment before the call comes, and are used once", async () => {
    const prepared = async (): Promise<void> => {
      const startedMs = Date.now();
      const { status, value } = await run("tool");
      expect(status).toBe("ok");
      expect(value).toMatchObject({
        input: "上海",
        told: "tool",
        variable: "one",
        calls: 1,
        found: false,
      });
      expect((value as Told).toldMs).toBeLessThan(startedMs); // the module's answer, checked above
    };
    await vi.waitFor(prepared, patience);
    await vi.waitFor(prepared, patience);
  });

  it("load code that one of their kind has compiled, and can change none of it", async () => {
    const looking = join(place, `compiled-${tier}.mjs`);
    writeFileSync(looking, compiledModule);
    const program = {
      runtime: "node" as const,
      module: looking,
      readable: [looking],
      preparation: "tool",
    };
    await vi.waitFor(async () => {
      const { value } = await sandbox.run({ program, signal: never });
      expect(value).toEqual({ files: expect.any(Number), refused: expect.arrayContaining([]) });
      const { files, refused } = value as { files: number; refused: string[] }; // as expected just above
      expect(files).toBeGreaterThan(0);
      expect(refused).toHaveLength(3);
      for (const code of refused) expect(["EROFS", "EACCES", "EPERM"]).toContain(code);
    }, patience);
  });

  it("are used for no other tool, and with no other environment", async () => {
    const kinds = [
      ["tool", "one"],
      ["tool", "two"],
      ["other", "one"],
    ] as const;
    for (let round = 0; round < 4; round += 1) {
      const results = await Promise.all(
        kinds.map(async ([tool, variable]) => await run(tool, variable)),
      );
      expect(results).toMatchObject(
        kinds.map(([told, variable]) => ({
          status: "ok",
          value: { told, variable, calls: 1, found: false },
        })),
      );
    }
  });

  it("have their time from the call on, however long they waited for it", async () => {
    const wallMs = 6_000;
    expect(await run("tool")).toMatchObject({ status: "ok" });
    const waitedLonger = async (): Promise<void> => {
      const startedMs = Date.now();
      const { status, value } = await run("tool", "one", wallMs);
      expect(status).toBe("ok");
      expect(startedMs - (value as Told).toldMs).toBeGreaterThan(wallMs); // the module's answer
    };
    await vi.waitFor(waitedLonger, { timeout: 120_000, interval: wallMs + 1_000 });
  });

  it("are not kept where that fails, or where the module speaks out of turn: the call says what is wrong", async () => {
    events.length = 0;
    expect(await run("fails")).toMatchObject({
      status: "error",
      error: expect.stringContaining("nothing to load"),
    });
    await vi.waitFor(
      () => expect(events).toContainEqual(expect.stringContaining("not prepared")),
      patience,
    );
    expect(await run("fails")).toMatchObject({
      status: "error",
      error: expect.stringContaining("nothing to load"),
    });
    expect(await run("talks")).toMatchObject({ status: "protocol" });
    expect(await run("talks")).toMatchObject({ status: "protocol" });
    expect(await run("tool")).toMatchObject({ status: "ok" });
  });
});
