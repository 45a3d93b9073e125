import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import type { Sandbox, TierFinding } from "./index.ts";
import { attackTier } from "./probe.ts";
import {
  buildLauncher,
  hasProgram,
  makePlace,
  openTier,
  removePlace,
} from "./sandbox-place.fixture.ts";

const place = makePlace();
const launcher = buildLauncher(place);
afterAll(() => removePlace(place));

const program = fileURLToPath(new URL("./sandbox-findings.fixture.ts", import.meta.url));
const isRoot = process.getuid?.() === 0;
const user = 48_222;
const minuteMs = 60_000;
let count = 0;

/**
 * The real launcher, with less than it should get: an option and its value that match the first pattern are left out, or
 * rewritten. `when`: only for command lines that match.
 */
function weakLauncher(pattern: string, instead?: string, when = "*"): string {
  const path = join(place, `weak-${(count += 1)}`);
  const script = `#!/bin/bash
case "$*" in ${when}) ;; *) exec ${launcher} "$@" ;; esac
args=()
while [ "$1" != "--" ]; do
  case "$1 $2" in
    ${pattern}) ${instead === undefined ? "" : `args+=("$1" "\${2/${instead}}")`} ;;
    *) args+=("$1" "$2") ;;
  esac
  shift 2
done
exec ${launcher} "\${args[@]}" "$@"
`;
  writeFileSync(path, script);
  chmodSync(path, 0o755);
  return path;
}

/** What an ordinary user finds. */
async function findings(options: Record<string, unknown>): Promise<TierFinding[]> {
  const directory = join(place, `d${(count += 1)}`);
  mkdirSync(directory, { mode: 0o777 });
  chmodSync(directory, 0o777);
  const as = isRoot
    ? ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups", "--inh-caps=-all"]
    : [];
  const given = JSON.stringify({ directory: join(directory, "own"), ...options });
  const [command = "", ...args] = [...as, process.execPath, "--no-warnings", program, given];
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(await text(child.stdout)) as TierFinding[];
}

describe.runIf(launcher !== undefined)(
  "the probe of sbx, as an ordinary user",
  { timeout: 5 * minuteMs },
  () => {
    it("says that it holds, and for no reason", async () => {
      expect(await findings({ tiers: ["sbx"], launcherPath: launcher })).toEqual([
        { tier: "sbx", holds: true, reason: "" },
      ]);
    });

    it.each([
      { what: "all system calls", option: "-s*", reason: "a socket at a path: was connected to" },
      {
        what: "sockets",
        option: "-s*",
        instead: "none-/loopback-",
        reason: "a socket at a path: was connected to",
      },
      {
        what: "memory files",
        option: "-s*",
        instead: "-uncounted/-counted",
        reason: "MB in memory files",
      },
      {
        what: "paths",
        option: "-s*",
        instead: "-host/-own",
        reason: "a descriptor of a path: was had",
      },
      {
        what: "facts of files",
        option: "-q*",
        instead: "ask-files/ask",
        reason: "the facts of a file: was had",
      },
      { what: "the files themselves", option: "-l*", reason: "a file of the host: was read" },
      { what: "the size of dumps", option: '"-b core"*', reason: "a dump of" },
      { what: "memory", option: "-m*", reason: "MB in several processes, " },
      { what: "the buffers of sockets", option: "-k*", reason: "MB in buffers of sockets" },
      {
        what: "the number of files",
        option: "-f*",
        reason: "the number of files in .: is not bounded",
      },
      {
        what: "the number of processes",
        option: '-n*|"-b nproc"*',
        reason: "the limit of processes: ",
      },
    ])("finds that nothing holds $what", async ({ option, instead, reason }) => {
      const [finding] = await findings({
        tiers: ["sbx"],
        launcherPath: weakLauncher(option, instead),
      });
      expect(finding).toMatchObject({ holds: false, reason: expect.stringContaining(reason) });
    });

    it("accepts unbounded memory where the settings allow it, and still says so", async () => {
      const options = {
        tiers: ["sbx"],
        launcherPath: weakLauncher("-m*"),
        allowUnboundedMemory: true,
      };
      const [finding] = await findings(options);
      expect(finding).toMatchObject({
        tier: "sbx",
        holds: true,
        reason: expect.stringContaining("memory is not bounded"),
      });
    });

    it("proves nothing without Python, and says so", async () => {
      const options = {
        tiers: ["sbx"],
        launcherPath: launcher,
        pythonPath: "/nonexistent/python3",
      };
      const [finding] = await findings(options);
      expect(finding).toMatchObject({
        holds: false,
        reason: expect.stringContaining("cannot be proved"),
      });
    });
  },
);

describe.runIf(launcher !== undefined)(
  "an attack that decides nothing",
  { timeout: 5 * minuteMs },
  () => {
    it("is no proof where it could not be made", async () => {
      // No process can be made where memory is attacked.
      const noFork = weakLauncher('"-b nproc"*', "nproc=*/nproc=1", '*"-m 64 "*');
      const [finding] = await findings({ tiers: ["sbx"], launcherPath: noFork });
      expect(finding).toMatchObject({
        holds: false,
        reason: expect.stringContaining(
          "it cannot be proved: the attack on memory by several processes ended: error",
        ),
      });
    });

    it("is made again with more time, and is no proof where that is still too little", async () => {
      const directory = join(place, "slow");
      const sandbox = await openTier("sbx", { launcherPath: launcher ?? "", directory });
      const options = { directory: place, hasPython: true, allowUnboundedMemory: false };
      const asked: string[] = [];
      /** As on a machine on which programs get nothing done before their time is over: always, or the first time. */
      const slow = (isSlow: (program: string) => boolean): Sandbox => ({
        tier: "sbx",
        open: async (command) => await sandbox.open(command),
        close: async () => {},
        run: async (request) => {
          const { program: given, limits } = request;
          const code = "code" in given ? given.code : "";
          const isTooSlow = isSlow(code);
          asked.push(code);
          if (!isTooSlow) return await sandbox.run(request);
          // It does nothing at all: what is only given a millisecond may have an end before it is stopped.
          const idle = {
            runtime: "node" as const,
            code: "await new Promise((resolve) => setTimeout(resolve, 600_000));",
          };
          return await sandbox.run({ ...request, program: idle, limits: { ...limits, wallMs: 1 } });
        },
      });
      const never = await attackTier(
        slow(() => true),
        options,
      );
      expect(never).toMatchObject({
        holds: false,
        reason: expect.stringContaining("it cannot be proved: "),
      });
      expect(asked).toHaveLength(3);
      asked.length = 0;
      const later = await attackTier(
        slow((code) => !asked.includes(code)),
        options,
      );
      expect(later).toEqual({ tier: "sbx", holds: true, reason: "" });
      // What decides nothing then either is made a third time.
      const timesAsked = Map.groupBy(asked, (code) => code).values();
      expect([...timesAsked].filter(({ length }) => length < 2)).toEqual([]);
      await sandbox.close();
    });
  },
);

describe.runIf(hasProgram("bwrap"))(
  "the probe of bwrap, as an ordinary user",
  { timeout: 5 * minuteMs },
  () => {
    it.runIf(launcher !== undefined)("says that it holds, and for no reason", async () => {
      expect(await findings({ tiers: ["bwrap"], launcherPath: launcher })).toEqual([
        { tier: "bwrap", holds: true, reason: "" },
      ]);
    });

    it("finds that nothing counts memory without the launcher", async () => {
      const [finding] = await findings({ tiers: ["bwrap"], launcherPath: "/nonexistent/sbx" });
      expect(finding).toMatchObject({
        holds: false,
        reason: expect.stringContaining("memory is not bounded"),
      });
    });
  },
);
