import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { root } from "../docs/document.ts";
import type { Engine } from "./engine.ts";

const run = promisify(execFile);
const dockerfile = join(root, "infra/docker/Dockerfile");

/** Processes of builds and of the composition get no more files and processes than machines of CI allow. */
export const openFiles = 4096;
const limits = [`--ulimit=nofile=${openFiles}:${openFiles}`, "--ulimit=nproc=4096:4096"];

/** Stands for the images of registries: no registry can be reached from everywhere, Debian's packages can. */
const base = "localhost/larkline-base:1";

/** The mirror that this machine's own packages come from. */
async function debianMirror(): Promise<string> {
  const files = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
  for (const file of files) {
    const text = await readFile(file, "utf8").catch(() => "");
    const found = /^(?:URIs:|deb(?: \[[^\]]*\])?) *(https?:\S+)/m.exec(text)?.[1];
    if (found !== undefined) return found;
  }
  return "http://deb.debian.org/debian";
}

const certificates = "/etc/ssl/certs/ca-certificates.crt";

/** What a process in a container needs of this machine to reach npm: a proxy, another registry, their certificates. */
async function networkSettings(): Promise<Record<string, string>> {
  const names = ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];
  const given = names.flatMap((name) => {
    const value = process.env[name];
    return value === undefined ? [] : [[name, value]];
  });
  const { stdout } = await run("npm", ["config", "get", "registry"]);
  return {
    ...Object.fromEntries(given),
    npm_config_registry: stdout.trim(),
    NODE_EXTRA_CA_CERTS: certificates,
  };
}

/** Debian with the pinned Node and npm, as the official image has them. Made once. */
async function makeBase({ podman }: Engine): Promise<void> {
  const isThere = await podman("image", "exists", base).then(
    () => true,
    () => false,
  );
  if (isThere) return;
  const folder = await mkdtemp(join(tmpdir(), "larkline-base-"));
  const files = join(folder, "root");
  const archive = join(folder, "root.tar");
  try {
    const packages = "--include=ca-certificates";
    await run("debootstrap", [
      "--variant=minbase",
      packages,
      "bookworm",
      files,
      await debianMirror(),
    ]);
    await mkdir(join(files, "usr/local/bin"), { recursive: true });
    await copyFile(join(root, "node_modules/node/bin/node"), join(files, "usr/local/bin/node"));
    const npm = ["install", "--global", "--prefix", join(files, "usr/local"), "npm@11"];
    await run("npm", npm);
    const own = process.env["NODE_EXTRA_CA_CERTS"];
    if (own !== undefined) await copyFile(own, join(files, certificates));
    await run("chroot", [files, "useradd", "--uid", "1000", "--create-home", "node"]);
    await run("tar", ["-C", files, "-cf", archive, "."]);
    const settings = Object.entries(await networkSettings()).flatMap(([name, value]) => [
      "--change",
      `ENV ${name}=${value}`,
    ]);
    await podman("import", ...settings, archive, base);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** A Dockerfile whose images of registries are replaced by ours. */
function rebased(text: string): string {
  return text.replaceAll(/^FROM (?:node|debian):\S+/gm, `FROM ${base}`);
}

const redisImage = `FROM ${base}
RUN apt-get update && apt-get install --yes --no-install-recommends redis-server
RUN mkdir --parents /data && chown 999:999 /data
WORKDIR /data
`;

/** What is built: the name of the image, and what the Dockerfile is given for it. */
const images = [
  { image: "larkline/ingress", app: "ingress", target: "app" },
  { image: "larkline/agent-worker", app: "agent-worker", target: "app" },
  { image: "larkline/console", app: "console", target: "app" },
  { image: "larkline/tool-runner", app: "tool-runner", target: "sandbox" },
  { image: "larkline/feishu-runner", app: "tool-runner", target: "feishu" },
] as const;

/** The name under which docker-compose looks for an image. */
function known(image: string): string {
  return `docker.io/${image}:latest`;
}

/** The image of Redis in the composition of a test. */
export const redisName = "larkline/redis";

async function build({ podman }: Engine, text: string, words: readonly string[]): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-build-"));
  const file = join(folder, "Dockerfile");
  try {
    await writeFile(file, text);
    const common = ["--network=host", "--format=docker", ...limits, `--file=${file}`];
    await podman("build", ...common, ...words);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Builds the image of Redis and of each app from our Dockerfile. */
export async function buildImages(engine: Engine): Promise<void> {
  await makeBase(engine);
  await build(engine, redisImage, [`--tag=${known(redisName)}`, join(root, "infra/docker")]);
  const text = rebased(await readFile(dockerfile, "utf8"));
  for (const { image, app, target } of images) {
    await build(engine, text, [
      `--build-arg=APP=${app}`,
      `--target=${target}`,
      `--ignorefile=${dockerfile}.dockerignore`,
      `--tag=${known(image)}`,
      root,
    ]);
  }
}

/** Makes a further version of an image, under the same name. */
export async function buildNewVersion(engine: Engine, image: string): Promise<void> {
  const text = `FROM ${known(image)}\nLABEL version=next\n`;
  await build(engine, text, [`--tag=${known(image)}`, join(root, "infra/docker")]);
}
