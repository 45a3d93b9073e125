import { execFile, spawn, type ChildProcess } from "node:child_process";
import { constants } from "node:fs";
import { chmod, copyFile, cp, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, matchesGlob, relative } from "node:path";
import { promisify } from "node:util";
import { root } from "../docs/document.ts";

const run = promisify(execFile);
const dockerfile = join(root, "infra/docker/Dockerfile");

/** What stands behind an instruction of the Dockerfile that begins so; the first one. */
export async function instruction(beginning: string): Promise<string> {
  const lines = (await readFile(dockerfile, "utf8")).split("\n");
  const line = lines.find((each) => each.startsWith(beginning));
  if (line === undefined) {
    throw new Error(`the Dockerfile has no line that begins with ${beginning}`);
  }
  return line;
}

/** A file system as the Dockerfile makes it for one app, in a folder. */
export interface Image {
  /** What is `/app` in the container. */
  folder: string;
  app: string;
  /** Starts it as its `CMD` does, as an ordinary user who may write nothing there. */
  start(env: Record<string, string>): ChildProcess;
  /** Runs Node in the same way; the exit code. */
  node(words: readonly string[], env?: Record<string, string>): Promise<number>;
}

/** Folders of images, and how to get rid of them. */
export interface Workshop {
  build(app: string, withSandbox: boolean): Promise<Image>;
  /** What the builder would be sent. */
  context: string;
  close(): Promise<void>;
}

const isRoot = process.getuid?.() === 0;
/** A user that does not own the files, where this process may change its user. */
const somebody = isRoot ? { uid: 65_534, gid: 65_534 } : {};

/** For tests that are not run by root: their own folders, in which files may be made or not. Files are left alone, being links. */
async function allowMaking(folder: string, allowed: boolean): Promise<void> {
  if (!isRoot) {
    await run("find", [folder, "-type", "d", "-exec", "chmod", allowed ? "u+w" : "a-w", "{}", "+"]);
  }
}

/** The checkout without what the ignore file names. */
async function copyContext(to: string): Promise<void> {
  const ignored = (await readFile(`${dockerfile}.dockerignore`, "utf8"))
    .split("\n")
    .filter((line) => line !== "");
  const isKept = (path: string): boolean => {
    const name = relative(root, path);
    return name === "" || !ignored.some((pattern) => matchesGlob(name, pattern));
  };
  await cp(root, to, { recursive: true, filter: isKept });
}

/** Carries out the steps of the Dockerfile by hand: its own lines, with the packages that are here already. */
export async function openWorkshop(): Promise<Workshop> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-images-"));
  await chmod(folder, 0o755);
  const context = join(folder, "context");
  const bin = join(folder, "bin");
  await mkdir(bin);
  // A checkout may be where an ordinary user cannot go.
  await copyFile(process.execPath, join(bin, "node"), constants.COPYFILE_FICLONE);
  await copyContext(context);
  const tools = `${join(root, "node_modules/.bin")}:${process.env["PATH"] ?? ""}`;
  const step = async (
    line: string,
    cwd: string,
    env: Record<string, string> = {},
  ): Promise<void> => {
    const command = line.replace(/^RUN /, "");
    await run("sh", ["-c", command], {
      cwd,
      env: { ...process.env, ...env, PATH: tools, CI: "1" },
    });
  };

  /** As the stage `bundled` makes it, whose packages the others do not see. */
  const bundle = async (): Promise<string> => {
    const stage = join(folder, "bundled");
    await cp(context, stage, { recursive: true });
    await step(
      `${await instruction("RUN pnpm install --prod --frozen-lockfile --filter")} --prefer-offline`,
      stage,
    );
    await step(await instruction("RUN node infra/dev/bundle.mjs"), stage);
    return join(stage, "bundles");
  };
  let bundles: Promise<string> | undefined;

  const build: Workshop["build"] = async (app, withSandbox) => {
    await step(await instruction("RUN turbo prune"), context, { APP: app });
    const out = join(context, "out");
    const image = join(folder, app);
    await cp(join(out, "json"), image, { recursive: true });
    await step(`${await instruction("RUN pnpm install")} --prefer-offline`, image);
    await step(await instruction("RUN rm -rf node_modules/node "), image);
    await cp(join(out, "full"), image, { recursive: true, force: true });
    await cp(join(context, "infra/docker"), join(image, "infra/docker"), { recursive: true });
    await rm(out, { recursive: true });
    await cp(await (bundles ??= bundle()), join(image, "bundles"), { recursive: true });
    if (withSandbox) {
      const sbx = "packages/sandbox/src/sbx";
      await run("sh", [join(context, sbx, "build.sh"), join(image, sbx, "build/sbx")]);
    }
    await allowMaking(image, false);
    const options = (env: Record<string, string>) => ({
      cwd: image,
      env: {
        PATH: `${bin}:/usr/bin:/bin`,
        NODE_ENV: "production",
        APP: app,
        HOST: "127.0.0.1",
        ...env,
      },
      ...somebody,
    });
    const [command = "", ...given] = JSON.parse(
      (await instruction("CMD")).replace(/^CMD /, ""),
    ) as string[];
    return {
      folder: image,
      app,
      start: (env) => spawn(command, given, { ...options(env), stdio: ["ignore", "pipe", "pipe"] }),
      node: async (words, env = {}) => {
        const child = spawn("node", words, { ...options(env), stdio: "ignore" });
        return await new Promise((resolve) => child.once("exit", (code) => resolve(code ?? -1)));
      },
    };
  };
  const close = async (): Promise<void> => {
    await allowMaking(folder, true);
    await rm(folder, { recursive: true, force: true });
  };
  return { build, context, close };
}
