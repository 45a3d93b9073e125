"use strict";
// Runs inside a sandbox, before the program and then around it, in one realm with it. Nothing here
// protects anything: it can lie about its own run only. Descriptor 3 carries frames: a length in four
// bytes, little-endian, then JSON. Reading blocks, so that a warm sandbox costs no time.
const { readSync, writeSync } = require("node:fs");
const { createRequire } = require("node:module");
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

async function runModule(path, input, progress) {
  const { main } = await import(pathToFileURL(path).href);
  if (typeof main !== "function") throw new TypeError("the module exports no function main");
  return await main(input, { progress });
}

async function run(job) {
  const progress = progressReporter();
  const value =
    job.module === undefined
      ? await runCode(job.code, job.input, progress)
      : await runModule(job.module, job.input, progress);
  await flush();
  send({ kind: "result", value: value === undefined ? null : value });
}

/** What the program has still to write to its output goes out first: with the answer all is over. */
async function flush() {
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength > 0) await new Promise((resolve) => stream.write("", resolve));
  }
}

send({ kind: "ready" });
const job = JSON.parse(readBytes(readBytes(4).readUInt32LE(0)).toString("utf8"));
send({ kind: "began" });
Object.assign(env, job.env);
const failAndEnd = async (error) => {
  await flush();
  try {
    fail(error);
  } finally {
    process.exit(1);
  }
};
process.on("uncaughtException", failAndEnd);
process.on("unhandledRejection", failAndEnd);
run(job).then(() => process.exit(0), failAndEnd);
