#!/usr/bin/env node
// `npx larkline`: does what `npm start` does in a checkout, with the folder that it is called in for `.env`,
// larkline.config.ts, the files of tools and the data. `npm run pack` puts the sources beside this file.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from "node:fs";
import { createHash } from "node:crypto";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const isChinese = /^zh/i.test(
  process.env.LC_ALL || process.env.LC_MESSAGES || process.env.LANG || "",
);

const usage = isChinese
  ? `npx larkline                在当前文件夹启动全部服务（与检出目录里的 npm start 相同）
npx larkline init <文件夹>  创建一个文件夹，内有工具、它的测试和配置
npx larkline <命令> ...     chat、setup、doctor、runner-key、runner、audit、ratings、people；--help 说明它们`
  : `npx larkline                starts everything for this folder, as npm start does in a checkout
npx larkline init <folder>  makes a folder with a tool, its test and a configuration
npx larkline <command> ...  chat, setup, doctor, runner-key, runner, audit, ratings, people; --help explains them`;

const commands = ["chat", "setup", "doctor", "runner-key", "runner", "audit", "ratings", "people"];
const signalNumbers = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 };

/**
 * The sources, unpacked once for each state of them below the cache of this user: Node strips no types below
 * `node_modules`, where npm puts this file.
 */
function unpacked() {
  const archive = join(here, "sources.tgz");
  const digest = createHash("sha256").update(readFileSync(archive)).digest("hex").slice(0, 16);
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "larkline");
  const place = join(cache, digest);
  if (existsSync(place)) return place;
  mkdirSync(cache, { recursive: true, mode: 0o700 });
  const draft = mkdtempSync(join(cache, "draft-"));
  const unpacking = spawnSync("tar", ["-xzf", archive, "-C", draft], { stdio: "inherit" });
  if (unpacking.status !== 0) {
    rmSync(draft, { recursive: true, force: true });
    throw new Error(`tar could not unpack ${archive}: ${unpacking.error?.message ?? "see above"}`);
  }
  try {
    renameSync(draft, place);
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    if (!existsSync(place)) throw error; // another one was quicker
  }
  return place;
}

/** Runs a program of the sources to its end. */
async function run(...args) {
  const child = spawn(process.execPath, args, {
    stdio: "inherit",
    env: { ...process.env, LARKLINE_FOLDER: process.cwd() },
  });
  // In a terminal Ctrl-C reaches the whole foreground group, so passing it on would double it.
  for (const name of Object.keys(signalNumbers)) {
    process.on(name, () =>
      process.stdin.isTTY && name === "SIGINT" ? undefined : child.kill(name),
    );
  }
  return await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve(code ?? 128 + (signalNumbers[signal] ?? 0)));
  });
}

async function main([name = "start", ...words]) {
  if (name === "start" && words.length === 0) {
    return await run(join(unpacked(), "infra/dev/start.mjs"));
  }
  if (name === "init") return await run(join(here, "create/larkline-create.mjs"), ...words);
  if (commands.includes(name)) {
    return await run(join(unpacked(), "infra/dev/run.mjs"), "apps/cli/src/main.ts", name, ...words);
  }
  const isHelp = name === "--help" || name === "-h";
  (isHelp ? console.log : console.error)(usage);
  return isHelp ? 0 : 2;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
