"use strict";
// Runs inside a sandbox, before the program and then around it, in one realm with it. Nothing here
// protects anything: it can lie about its own run only. Descriptor 3 carries frames: a length in four
// bytes, little-endian, then JSON. Reading blocks, so that a warm sandbox costs no time.
const { readSync, writeSync } = require("node:fs");
const { createRequire, enableCompileCache, flushCompileCache } = require("node:module");
const { env } = require("node:process");
const { pathToFileURL } = require("node:url");
const { constants, Script } = require("node:vm");

const progressMs = 100;

function readBytes(count) {
  const bytes = Buffer.allocUnsafe(count);
  for (let at = 0; at < count;) {
    const read = readSync(3, bytes, at, count - at, null);
    if (read === 0) process.exit(0);
    at += read;
  }
  return bytes;
}

function send(frame) {
  const body = Buffer.from(JSON.stringify(frame));
  const header = Buffer.allocUnsafe(4);
  header.writeUInt32LE(body.length);
  const bytes = Buffer.concat([header, body]);
  for (let at = 0; at < bytes.length;) at += writeSync(3, bytes, at);
}

/** The lines of a stack that belong to the program. */
function stackOf(error) {
  const lines = String(error.stack).split("\n");
  const own = lines.filter((line) => line.includes("program.js"));
  return own.slice(0, 5).join("\n");
}

function fail(error) {
  const isError = error !== null && typeof error === "object" && "message" in error;
  const name = String(isError ? error.name : "Error").slice(0, 100);
  const message = String(isError ? error.message : error).slice(0, 4_000);
  send({ kind: "error", name, message, stack: isError ? stackOf(error).slice(0, 2_000) : "" });
}

function progressReporter() {
  let lastMs = 0;
  return (fraction, detail = "") => {
    const nowMs = Date.now();
    if (nowMs - lastMs < progressMs) return;
    lastMs = nowMs;
    send({ kind: "progress", fraction: Number(fraction), detail: String(detail).slice(0, 500) });
  };
}

async function runCode(code, input, progress) {
  const require = createRequire(`${process.cwd()}/program.js`);
  const script = new Script(`(async (require, input, progress) => {${code}\n})`, {
    filename: "program.js",
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  return await script.runInThisContext()(require, input, progress);
}

/** The function `main` of a module that has made its preparations. */
async function preparedModule({ module, preparation }) {
  const exported = await import(pathToFileURL(module).href);
  if (typeof exported.main !== "function") {
    throw new TypeError("the module exports no function main");
  }
  if (preparation !== null) await exported.prepare(preparation);
  return exported.main;
}

async function run(job, main) {
  const progress = progressReporter();
  const value =
    job.module === undefined
      ? await runCode(job.code, job.input, progress)
      : await (main ?? (await preparedModule(job)))(job.input, { progress });
  await flush();
  send({ kind: "result", value: value === undefined ? null : value });
}

/** What the program has still to write to its output goes out first: with the answer all is over. */
async function flush() {
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength > 0) await new Promise((resolve) => stream.write("", resolve));
  }
}

function readFrame() {
  return JSON.parse(readBytes(readBytes(4).readUInt32LE(0)).toString("utf8"));
}

/** Loads what the next job needs, in its environment, and then waits for it: nothing else happens here meanwhile. */
async function prepare(ahead) {
  Object.assign(env, ahead.env);
  useCompiled(ahead.compiled);
  const main = await preparedModule(ahead);
  send({ kind: "prepared" });
  start(readFrame(), main);
}

/** Loads the same, leaves the compiled code of it for the next ones, and ends: this process never gets a job. */
async function compile(ahead) {
  Object.assign(env, ahead.env);
  enableCompileCache(`${process.cwd()}/${ahead.compileTo}`);
  await preparedModule(ahead);
  flushCompileCache();
  send({ kind: "prepared" });
  process.exit(0);
}

/** Compiled code of an earlier process that loaded the same; it cannot be changed from here. */
function useCompiled(directory) {
  if (directory) enableCompileCache(directory);
}

async function failAndEnd(error) {
  await flush();
  try {
    fail(error);
  } finally {
    process.exit(1);
  }
}

function start(job, main) {
  send({ kind: "began" });
  Object.assign(env, job.env);
  if (main === undefined) useCompiled(job.compiled);
  process.on("uncaughtException", failAndEnd);
  process.on("unhandledRejection", failAndEnd);
  run(job, main).then(() => process.exit(0), failAndEnd);
}

send({ kind: "ready" });
const first = readFrame();
// What goes wrong ahead of a job ends the process; Node says why.
if (first.compileTo) void compile(first);
else if (first.isAhead) void prepare(first);
else start(first);
