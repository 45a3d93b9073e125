import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { root } from "../docs/document.ts";

const execute = promisify(execFile);

/** Images and layers stay here between runs, apart from those of the machine. */
const storage = join(root, ".data/test/containers");

/** A container as `podman ps` describes it. */
export interface Container {
  Id: string;
  Names: string[];
  State: string;
  Pid: number;
  Labels: Record<string, string>;
}

/** Podman with runc, and docker-compose (1.29, of Debian) that reaches it by its socket. */
export interface Engine {
  /** Runs podman and resolves to its output; rejects with what it said. */
  podman(...words: string[]): Promise<string>;
  /** Runs docker-compose in a folder. */
  compose(folder: string, ...words: string[]): Promise<string>;
  /** All containers of a composition, by service; those that have ended too. */
  containers(project: string): Promise<Map<string, Container[]>>;
  close(): Promise<void>;
}

/** `runc`, because `crun` refuses a hybrid tree of cgroups; `cgroupfs`, because there may be no systemd. */
const engineConf = `[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
runc = ["/usr/sbin/runc"]
`;

async function output(
  program: string,
  words: readonly string[],
  options: { env: NodeJS.ProcessEnv; cwd?: string },
): Promise<string> {
  const { stdout } = await execute(program, words, { ...options, maxBuffer: 64 * 1024 * 1024 });
  return stdout;
}

/** Starts the engine. Needs root, and the packages that `npm run test:containers` installs. */
export async function openEngine(): Promise<Engine> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-containers-"));
  await mkdir(storage, { recursive: true });
  const socket = join(folder, "podman.sock");
  const conf = (name: string): string => join(folder, name);
  await writeFile(conf("containers.conf"), engineConf);
  await writeFile(
    conf("storage.conf"),
    `[storage]\ndriver = "overlay"\ngraphroot = "${storage}"\nrunroot = "${conf("run")}"\n`,
  );
  const env = {
    ...process.env,
    CONTAINERS_CONF: conf("containers.conf"),
    CONTAINERS_STORAGE_CONF: conf("storage.conf"),
    DOCKER_HOST: `unix://${socket}`,
    // docker-compose waits this long for an answer; a machine under load takes its time to start ten containers.
    COMPOSE_HTTP_TIMEOUT: "300",
  };
  const service = spawn("podman", ["system", "service", "--time=0", `unix://${socket}`], {
    env,
    stdio: "ignore",
  });
  const podman: Engine["podman"] = async (...words) => await output("podman", words, { env });
  const stopChecks = checkHealth(podman);
  await socketOf(service, socket);
  return {
    podman,
    compose: async (cwd, ...words) => await output("docker-compose", words, { env, cwd }),
    containers: async (project) => {
      const filter = `label=com.docker.compose.project=${project}`;
      const listed = await podman("ps", "--all", "--filter", filter, "--format", "json");
      const all = JSON.parse(listed) as Container[]; // podman's own format
      return Map.groupBy(all, ({ Labels }) => Labels["com.docker.compose.service"] ?? "");
    },
    close: async () => {
      await stopChecks();
      service.kill("SIGTERM");
      if (service.exitCode === null && service.signalCode === null) await once(service, "exit");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function socketOf(service: ChildProcess, socket: string): Promise<void> {
  while (!existsSync(socket)) {
    if (service.exitCode !== null) throw new Error("podman's service ended at once");
    await delay(50);
  }
}

/**
 * Runs the health checks of all running containers each second, until the returned function is called. Podman leaves
 * that to timers of systemd, which a machine need not have.
 */
function checkHealth(podman: Engine["podman"]): () => Promise<void> {
  const stop = new AbortController();
  const checkAll = async (): Promise<void> => {
    const ids = (await podman("ps", "--quiet")).split("\n").filter((id) => id !== "");
    // A check that fails exits with 1; the state of the container has what it found.
    await Promise.all(ids.map(async (id) => await podman("healthcheck", "run", id).catch(String)));
  };
  const run = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      await checkAll().catch(String);
      await delay(1_000, undefined, { signal: stop.signal }).catch(String);
    }
  };
  const running = run();
  return async () => {
    stop.abort();
    await running;
  };
}
