import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deploymentFiles, openFolder } from "@larkline/compose";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import { freePort, startModelServer, type ModelServer } from "@larkline/testkit";
import { parse } from "yaml";
import { root } from "../docs/document.ts";
import { waitForAnswer } from "../system/answer.ts";
import { obedientModel } from "../system/model-script.ts";
import type { Container, Engine } from "./engine.ts";
import { openFiles, redisName } from "./images.ts";

/** Services whose images we build; those of Prometheus and Grafana are in registries only. */
export const services = [
  "redis",
  "ingress",
  "agent-worker",
  "tool-runner",
  "feishu-runner",
  "console",
] as const;
export type Service = (typeof services)[number];

/** Where a container reaches the machine. */
const machine = "host.containers.internal";

interface Composition {
  name?: string;
  services: Record<
    string,
    { image: string; ulimits: object; tmpfs: string[]; [setting: string]: unknown }
  >;
  [part: string]: unknown;
}

/** The composition of infra/compose with the model and the platform of a test beside it. */
export interface Stack {
  readonly project: string;
  readonly feishu: FeishuSimulator;
  readonly model: ModelServer;
  /** Runs docker-compose with the composition. */
  compose(...words: string[]): Promise<string>;
  containers(service: Service): Promise<Container[]>;
  /** A chat of one person with the bot. */
  person(name: string): { openId: string; chatId: string };
  send(person: { openId: string; chatId: string }, text: string): Promise<string>;
  /** The text of the finished answer to a message. */
  answerTo(messageId: string): Promise<string>;
  ingressUrl: string;
  close(): Promise<void>;
}

/** Our composition as docker-compose 1.29 takes it: without a name, with the Redis of Debian and this machine's limits. */
async function adapted(): Promise<string> {
  const text = await readFile(join(root, "infra/compose/compose.yaml"), "utf8");
  const { name: _, ...composition } = parse(text, { merge: true }) as Composition; // our own file
  const kept = Object.entries(composition.services)
    .filter(([service]) => (services as readonly string[]).includes(service))
    .map(([service, settings]) => [
      service,
      {
        ...settings,
        ...(service === "redis" ? { image: redisName } : {}),
        // Docker's option, which podman does not know.
        tmpfs: settings.tmpfs.map((mount) => mount.replace(/,nr_inodes=\w+/, "")),
        ulimits: { ...settings.ulimits, nofile: openFiles, nproc: openFiles },
      },
    ]);
  // As JSON: for docker-compose the word `yes` without quotes is no word.
  return JSON.stringify({ ...composition, services: Object.fromEntries(kept) });
}

/** An address of this process as a container reaches it. */
function fromContainers(url: string): string {
  return `http://${machine}:${new URL(url).port}`;
}

/** Writes what an operator has and what `npm run compose-files` makes of it; starts nothing. */
export async function openStack(engine: Engine): Promise<Stack> {
  const checkout = await mkdtemp(join(tmpdir(), "larkline-stack-"));
  const project = `larkline${randomBytes(4).toString("hex")}`;
  const app = {
    appId: `cli_${randomBytes(8).toString("hex")}`,
    appSecret: randomBytes(16).toString("hex"),
    name: "Larkline",
  };
  const host = "0.0.0.0";
  const model = await startModelServer({ script: obedientModel, host });
  const feishu = await startFeishuSimulator({
    apps: [app],
    host,
    limits: "off",
    retryDelaysMs: [1_000, 2_000, 4_000, 8_000, 16_000],
  });
  const operator = {
    FEISHU_APP_ID: app.appId,
    FEISHU_APP_SECRET: app.appSecret,
    FEISHU_DOMAIN: fromContainers(feishu.url),
    MODEL: "anthropic/claude-sonnet-4-6",
    ANTHROPIC_API_KEY: "scripted",
    ANTHROPIC_BASE_URL: fromContainers(model.url),
  };
  const env = Object.entries(operator).map(([name, value]) => `${name}=${value}\n`);
  await writeFile(join(checkout, ".env"), env.join(""), { mode: 0o600 });
  const folder = join(checkout, "infra/compose");
  await mkdir(folder, { recursive: true });
  const { written, kept, save } = await openFolder("compose", checkout);
  await save(deploymentFiles(written, kept));
  const ports = { INGRESS_ADDRESS: await freePort(), CONSOLE_ADDRESS: await freePort() };
  const addresses = Object.entries(ports).map(([name, port]) => `${name}=127.0.0.1:${port}\n`);
  await writeFile(join(folder, ".env"), addresses.join(""));
  await writeFile(join(folder, "compose.yaml"), await adapted());
  const compose: Stack["compose"] = async (...words) =>
    await engine.compose(folder, "--project-name", project, ...words);
  return {
    project,
    feishu,
    model,
    compose,
    containers: async (service) => (await engine.containers(project)).get(service) ?? [],
    person: (name) => {
      const { openId } = feishu.addUser({ name });
      const { chatId } = feishu.addChat({ type: "p2p", members: [openId, app.appId] });
      return { openId, chatId };
    },
    send: async ({ openId, chatId }, text) =>
      (await feishu.sendMessage({ appId: app.appId, chatId, from: openId, text })).messageId,
    answerTo: async (messageId) =>
      (await waitForAnswer(feishu, messageId, { timeoutMs: 120_000 })).text,
    ingressUrl: `http://127.0.0.1:${ports.INGRESS_ADDRESS}`,
    close: async () => {
      await compose("down", "--volumes", "--timeout", "1").catch(String);
      await feishu.close();
      await model.close();
      await rm(checkout, { recursive: true, force: true });
    },
  };
}
