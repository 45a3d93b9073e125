import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { visibleAnswers } from "../system/answer.ts";
import { openEngine, type Container, type Engine } from "./engine.ts";
import { buildImages, buildNewVersion } from "./images.ts";
import { openStack, services, type Service, type Stack } from "./stack.ts";

/** An image is built once; on a machine of two cores that takes some minutes. */
const buildMs = 45 * 60_000;

const replicas: Record<Service, number> = {
  redis: 1,
  ingress: 1,
  "agent-worker": 2,
  "tool-runner": 2,
  "feishu-runner": 2,
  console: 1,
};

let engine: Engine;
let stack: Stack;
const opened: { close(): Promise<void> }[] = [];

beforeAll(async () => {
  engine = await openEngine();
  opened.push(engine);
  await buildImages(engine);
  stack = await openStack(engine);
  opened.unshift(stack);
  await stack.compose("up", "--detach", "--no-build");
}, buildMs);
afterAll(async () => {
  for (const each of opened) await each.close();
});

async function healthOf({ Id }: Container): Promise<string> {
  return (await engine.podman("inspect", Id, "--format", "{{.State.Health.Status}}")).trim();
}

/** Resolves when a service has as many containers as there should be, all of them healthy. */
async function healthy(service: Service): Promise<void> {
  const states = async (): Promise<string[]> => {
    const running = (await stack.containers(service)).filter(({ State }) => State === "running");
    return await Promise.all(running.map(healthOf));
  };
  const wanted = Array.from({ length: replicas[service] }, () => "healthy");
  await expect.poll(states, { message: service, timeout: 120_000, interval: 500 }).toEqual(wanted);
}

async function inside({ Id }: Container, ...words: string[]): Promise<string> {
  return (await engine.podman("exec", Id, ...words)).trim();
}

const apps = services.filter((service) => service !== "redis");

describe("the composition in a container engine", () => {
  it("has as many healthy containers of each service as it names", async () => {
    for (const service of services) await healthy(service);
    expect((await fetch(`${stack.ingressUrl}/ready`)).status).toBe(200);
  });

  it.each(apps)(
    "%s runs as an ordinary user, writes nothing, and has an end to its memory",
    async (service) => {
      const [container] = await stack.containers(service);
      if (container === undefined) return expect.fail(`no container of ${service}`);
      expect(await inside(container, "id", "-u")).toBe("1000");
      await expect(inside(container, "touch", "/app/written")).rejects.toThrow(
        "Read-only file system",
      );
      const status = await inside(container, "cat", "/proc/1/status");
      expect(status).toMatch(/^CapEff:\t0+$/m);
      expect(status).toMatch(/^NoNewPrivs:\t1$/m);
      const limit = await engine.podman(
        "inspect",
        container.Id,
        "--format",
        "{{.HostConfig.Memory}}",
      );
      expect(Number(limit)).toBeGreaterThan(0);
      const cgroup =
        "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes";
      expect(Number(await inside(container, "sh", "-c", cgroup))).toBe(Number(limit));
    },
  );

  it("gives Redis no way out of its network", async () => {
    const [redis] = await stack.containers("redis");
    if (redis === undefined) return expect.fail("no container of Redis");
    const format = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}";
    const names = (await engine.podman("inspect", redis.Id, "--format", format)).trim();
    expect(names).toBe(`${stack.project}_data`);
    const network = await engine.podman("network", "inspect", names, "--format", "{{.Internal}}");
    expect(network.trim()).toBe("true");
  });

  it("answers a message, with a tool of a runner", async () => {
    const ann = stack.person("Ann");
    const asked = await stack.send(ann, 'sum\ncall calculator {"expression":"12*7"}');
    expect(await stack.answerTo(asked)).toContain("84");
  });
});

describe("a container that is killed", () => {
  const killed: Service[] = [
    "redis",
    "ingress",
    "agent-worker",
    "tool-runner",
    "feishu-runner",
    "console",
  ];

  it.each(killed)(
    "%s is started again, and no message is lost or answered twice",
    async (service) => {
      const bob = stack.person(`Bob and ${service}`);
      const messages = [await stack.send(bob, "first type 100"), await stack.send(bob, "second")];
      await vi.waitUntil(
        () => visibleAnswers(stack.feishu, { ...bob, messageId: messages[0] ?? "" }).length > 0,
      );
      const victims = await stack.containers(service);
      // The init of the container, as if the machine had ended it: podman was not asked to stop it.
      for (const { Pid } of victims) process.kill(Pid, "SIGKILL");
      messages.push(await stack.send(bob, "third"));
      const answers: string[] = [];
      for (const messageId of messages) answers.push(await stack.answerTo(messageId));
      expect(answers.map((text) => text.split(" ")[0])).toEqual(["[first", "[second]", "[third]"]);
      for (const messageId of messages) {
        expect(visibleAnswers(stack.feishu, { ...bob, messageId })).toHaveLength(1);
      }
      await healthy(service);
    },
  );
});

describe("a new version of one image", () => {
  it("replaces the containers of its service alone, and answers everything meanwhile", async () => {
    const before = await Promise.all(
      services.map(async (service) => await stack.containers(service)),
    );
    await buildNewVersion(engine, "larkline/agent-worker");
    const carl = stack.person("Carl");
    const messages: string[] = [];
    const replaced = stack.compose("up", "--detach", "--no-build").then(() => true);
    do {
      const messageId = await stack.send(carl, `message ${messages.length}`);
      messages.push(messageId);
      expect(await stack.answerTo(messageId)).toBe(`[message ${messages.length - 1}]`);
    } while (!(await Promise.race([replaced, Promise.resolve(false)])));
    await healthy("agent-worker");
    for (const messageId of messages) {
      expect(visibleAnswers(stack.feishu, { ...carl, messageId })).toHaveLength(1);
    }
    for (const [index, service] of services.entries()) {
      const ids = (containers: readonly Container[]): string[] =>
        containers.map(({ Id }) => Id).toSorted();
      const now = ids(await stack.containers(service));
      const earlier = ids(before[index] ?? []);
      if (service === "agent-worker") {
        expect(now).toHaveLength(2);
        expect(now.filter((id) => earlier.includes(id))).toEqual([]);
      } else {
        expect(now).toEqual(earlier);
      }
    }
  });
});

describe("a backup of the disk of Redis", () => {
  it("brings conversations back after everything was deleted", async () => {
    const dora = stack.person("Dora");
    await stack.answerTo(await stack.send(dora, "my number is 4711"));
    const folder = await mkdtemp(join(tmpdir(), "larkline-backup-"));
    const archive = join(folder, "redis.tar");
    const volume = `${stack.project}_redis`;
    try {
      await stack.compose("stop");
      await engine.podman("volume", "export", volume, "--output", archive);
      await stack.compose("down", "--volumes");
      await stack.compose("up", "--no-start", "--no-build");
      await engine.podman("volume", "import", volume, archive);
      await stack.compose("up", "--detach", "--no-build");
      for (const service of services) await healthy(service);
      expect(await stack.compose("logs", "redis")).toContain("DB loaded from append only file");
      await stack.answerTo(await stack.send(dora, "what is my number?"));
      const request = stack.model.requests.at(-1);
      expect(JSON.stringify(request?.messages)).toContain("my number is 4711");
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});
