import { createHmac, randomBytes } from "node:crypto";
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { Failure } from "./failure.mjs";
import { dataFolder } from "./paths.mjs";
import { text } from "./texts.mjs";

const shortestKey = 32;

/** Undefined when there is no usable key; a process that wrote part of one has never used it. */
function storedKey(path) {
  try {
    const key = readFileSync(path, "utf8").trim();
    return key.length < shortestKey ? undefined : key;
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    return undefined;
  }
}

/** Renamed into place: whatever ends this process leaves the whole key or none. */
function makeKey(path) {
  const key = randomBytes(32).toString("hex");
  const draft = `${path}.${process.pid}.tmp`;
  const file = openSync(draft, "w", 0o600);
  try {
    writeSync(file, `${key}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(draft, path);
  return key;
}

/**
 * The key with which workers sign calls: `CALL_SIGNING_KEY`, otherwise one that is made once and kept
 * in the data folder, for its owner only. `npm run runner-key` reads the same file.
 */
export function callSigningKey(env) {
  const given = env.CALL_SIGNING_KEY ?? "";
  if (given !== "" && given.length < shortestKey) {
    throw new Failure(text("signingKeyShort", shortestKey));
  }
  if (given !== "") return given;
  const path = join(dataFolder(), "signing-key");
  return storedKey(path) ?? makeKey(path);
}

/** The key that people's grants are sealed with: `GRANT_KEY`, otherwise one that is kept in the same folder. */
export function grantKeyOf(env) {
  return env.GRANT_KEY || storedKey(grantKeyFile()) || makeKey(grantKeyFile());
}

function grantKeyFile() {
  return join(dataFolder(), "grant-key");
}

/** The key of one runner: the rule of packages/protocol, which the Node that runs this may not be able to load. */
export function runnerKeyOf(signingKey, runner) {
  return createHmac("sha256", signingKey).update(`runner:${runner}`).digest("hex");
}
