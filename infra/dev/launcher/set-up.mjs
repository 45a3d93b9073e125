import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isInstalled, runCommand } from "./command.mjs";
import { Failure } from "./failure.mjs";
import { pinnedNode, root } from "./paths.mjs";
import { text } from "./texts.mjs";

const stampFile = join(root, "node_modules", ".larkline-lock");

function lockHash() {
  const hash = createHash("sha256");
  for (const name of ["pnpm-lock.yaml", "pnpm-workspace.yaml", "package.json"]) {
    hash.update(readFileSync(join(root, name)));
  }
  return hash.digest("hex");
}

/** What may be installed; each has what those before it have. */
const parts = ["playground", "start", "all"];

/** Projects that run in a start; pnpm adds those that they need. */
const startProjects = ["agent-worker", "cli", "console", "ingress", "simulator", "tool-runner"];

/** What each part leaves out. */
const pnpmOptions = {
  playground: ["--prod", ...startFilters(), "--filter=!@larkline/openai-sdk"],
  start: ["--prod", ...startFilters()],
  all: [],
};

function startFilters() {
  return startProjects.map((name) => `--filter=@larkline/${name}...`);
}

/** What the last installation brought; nothing when the lock file or the machine's Node has changed since. */
function installedPart() {
  if (!existsSync(stampFile)) return undefined;
  const [hash, part] = readFileSync(stampFile, "utf8").split(" ");
  if (hash !== lockHash() || !parts.includes(part)) return undefined;
  return existsSync(pinnedNode) || (part !== "all" && isOwnNodeGood()) ? part : undefined;
}

/**
 * Whether the machine's own Node may run a start: the major version that is pinned, not older, and built as nodejs.org
 * builds it. Others load libraries of the machine, which a sandbox does not show them.
 */
export function isOwnNodeGood({ version, config } = process) {
  const [, pinned] = /^nodeVersion: (\S+)$/m.exec(
    readFileSync(join(root, "pnpm-workspace.yaml"), "utf8"),
  );
  const [major, ...rest] = pinned.split(".").map(Number);
  const [ownMajor, ...ownRest] = version.slice(1).split(".").map(Number);
  const isOlder = ownRest[0] < rest[0] || (ownRest[0] === rest[0] && ownRest[1] < rest[1]);
  const isShared = Object.entries(config.variables).some(
    ([name, is]) => name.startsWith("node_shared") && is === true,
  );
  return ownMajor === major && !isOlder && !isShared;
}

/** A command with the pinned pnpm on its PATH; npm fetches that once. */
export function withPnpm(command) {
  const { packageManager } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return ["npm", "exec", "--yes", `--package=${packageManager}`, "--", ...command];
}

/**
 * Installs what the lock file names; does nothing when that is in place, or when `LARKLINE_INSTALL` is `never` (tests
 * and images have their dependencies). `wanted` is `start` where nothing is tested, checked or built, and `playground`
 * where no model of OpenAI's interface is used either. What is there stays.
 */
export async function installDependencies({ signal, say }, wanted = "all") {
  if (process.env.LARKLINE_INSTALL === "never") return;
  const before = installedPart();
  const part = parts[Math.max(parts.indexOf(before), parts.indexOf(wanted))];
  if (part === before) return;
  say(text("installing"));
  // CI lets pnpm replace a node_modules of another layout without asking.
  const env = { ...process.env, CI: "true" };
  // The pinned Node is what the one install script brings.
  const ownNode = part !== "all" && !existsSync(pinnedNode) && isOwnNodeGood();
  const options = [...pnpmOptions[part], ...(ownNode ? ["--ignore-scripts"] : [])];
  // With pnpm's own 64 and more at a time, a registry that queues them answers the first one after a minute.
  const network = "--network-concurrency=8";
  const install = withPnpm([
    "pnpm",
    "install",
    ...options,
    network,
    "--frozen-lockfile",
    "--reporter=append-only",
  ]);
  const code = await runCommand(install, { signal, env });
  if (code !== 0 || !(ownNode || existsSync(pinnedNode))) throw new Failure(text("installFailed"));
  writeFileSync(stampFile, `${lockHash()} ${part}`);
}

/** Packages whose service has their name. */
const serviceNames = new Set(["redis-server", "prometheus", "postgresql"]);

/** The list of packages is fetched once. */
let updated;

/**
 * The package of a Debian service may start it; we run servers of our own. RUNLEVEL keeps the
 * package's scripts from that without systemd, `disable --now` undoes it with systemd.
 */
async function installDebian(packageName, { signal }) {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  const install = [
    "apt-get",
    "install",
    "-y",
    "-q",
    "--no-install-recommends",
    "-o",
    "DPkg::Lock::Timeout=120",
  ];
  updated ??= runCommand(["apt-get", "update", "-q"], { signal, env });
  await updated.catch((error) => {
    updated = undefined;
    throw error;
  });
  const code = await runCommand([...install, packageName], { signal, env });
  if (code === 0 && serviceNames.has(packageName) && existsSync("/run/systemd/system")) {
    await runCommand(["systemctl", "disable", "--now", packageName], { signal, output: "ignore" });
  }
}

function mayInstallDebian() {
  return process.getuid?.() === 0 && isInstalled("apt-get");
}

/**
 * Makes sure that a program is there, installing its system package when we may. `isThere` knows where those
 * are that are not on the PATH.
 */
export async function installProgram(
  { program, debian, homebrew, isThere = () => isInstalled(program) },
  { signal, say },
) {
  if (isThere()) return;
  if (mayInstallDebian()) {
    say(text("installingPackage", debian));
    await installDebian(debian, { signal });
  } else if (process.platform === "darwin" && homebrew !== undefined && isInstalled("brew")) {
    say(text("installingPackage", homebrew));
    await runCommand(["brew", "install", homebrew], { signal });
  }
  if (!isThere()) throw new Failure(text("programMissing", program, debian));
}

const offerMs = 60_000;

/** Installs a program that is of use but not needed, where we may and it does not take long. */
export async function offerProgram({ program, debian }, { signal, say }) {
  if (isInstalled(program) || !mayInstallDebian()) return;
  say(text("installingPackage", debian));
  try {
    await installDebian(debian, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(offerMs)]),
    });
  } catch (error) {
    if (signal.aborted) throw error;
  }
}

export const redisProgram = { program: "redis-server", debian: "redis-server", homebrew: "redis" };
/** Debian keeps the programs of its servers out of the PATH, in a folder for each version. */
export const postgresProgram = {
  program: "initdb",
  debian: "postgresql",
  homebrew: "postgresql@17",
  isThere: () => existsSync("/usr/lib/postgresql") || isInstalled("initdb"),
};
export const browserProgram = { program: "chromium", debian: "chromium" };
/** Keeps untrusted programs in; there is none for other systems than Linux. */
export const sandboxProgram = { program: "bwrap", debian: "bubblewrap" };
/** Checks the rules of Prometheus; the tests that need it are left out without it. */
export const rulesProgram = { program: "promtool", debian: "prometheus" };
/** Build and run our images: an engine, its networks and names, and Compose; `debootstrap` makes what images stand on. */
export const containerPrograms = [
  { program: "podman", debian: "podman" },
  { program: "buildah", debian: "buildah" },
  { program: "runc", debian: "runc" },
  { program: "catatonit", debian: "catatonit" },
  { program: "iptables", debian: "iptables" },
  {
    program: "netavark",
    debian: "netavark",
    isThere: () => existsSync("/usr/lib/podman/netavark"),
  },
  {
    program: "aardvark-dns",
    debian: "aardvark-dns",
    isThere: () => existsSync("/usr/lib/podman/aardvark-dns"),
  },
  { program: "docker-compose", debian: "docker-compose" },
  { program: "debootstrap", debian: "debootstrap" },
];
