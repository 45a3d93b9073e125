// `npm start`: sets up, starts everything on this machine, and stops it all again on Ctrl-C.
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { bundledApps } from "./launcher/bundles.mjs";
import { callSigningKey, grantKeyOf } from "./launcher/call-keys.mjs";
import { requireCredentials } from "./launcher/credentials.mjs";
import { readEnvFile } from "./launcher/env-file.mjs";
import { Failure, Stopped } from "./launcher/failure.mjs";
import { live } from "./launcher/life.mjs";
import { dataFolder, home, logDirectory, root, shownPath } from "./launcher/paths.mjs";
import { addressOf, planFrom } from "./launcher/plan.mjs";
import { freePort, requireFree } from "./launcher/port.mjs";
import { isRunning } from "./launcher/process.mjs";
import { seenFiles, watchFiles } from "./launcher/reload.mjs";
import { requireRedis, startPrivateRedis } from "./launcher/redis.mjs";
import { isPlayground, serviceEnv } from "./launcher/service-env.mjs";
import { startService, stopService, untilReady } from "./launcher/service.mjs";
import {
  installDependencies,
  installProgram,
  offerProgram,
  redisProgram,
  sandboxProgram,
} from "./launcher/set-up.mjs";
import { summaryOf } from "./launcher/summary.mjs";
import { text } from "./launcher/texts.mjs";

const readyMs = 60_000;
const progressMs = 2_000;
const graceMs = { services: 6_000, rest: 1_500, replaced: 12_000 };

/** Two launchers must not share the data folder (Redis writes there). Returns what undoes the claim. */
function claimDataFolder() {
  const file = join(dataFolder(), "launcher.pid");
  try {
    const pid = Number(readFileSync(file, "utf8"));
    if (pid !== process.pid && isRunning(pid, "start.mjs")) {
      throw new Failure(text("alreadyRunning", pid));
    }
  } catch (error) {
    if (error instanceof Failure) throw error;
  }
  writeFileSync(file, String(process.pid), { mode: 0o600 });
  return () => rmSync(file, { force: true });
}

function redisUrlFile() {
  return join(dataFolder(), "redis.url");
}

function takesWork({ name }) {
  return name !== "playground" && name !== "redis";
}

/** First those that take work, then what they need to finish it. Takes under 10 s in all. */
async function stopAll(running) {
  await Promise.all(
    running.filter(takesWork).map((service) => stopService(service, graceMs.services)),
  );
  for (const service of running.filter((one) => !takesWork(one)).toReversed()) {
    await stopService(service, graceMs.rest);
  }
}

async function openRedis({ plan, running, signal }) {
  if (plan.redisUrl !== undefined) return { url: plan.redisUrl, shown: text("givenRedis") };
  const redis = await startPrivateRedis({ signal });
  running.push(redis.server);
  // For `npm run audit`; like the password in it, good for this run only.
  writeFileSync(redisUrlFile(), `${redis.url}\n`, { mode: 0o600 });
  return {
    url: redis.url,
    shown: text("privateRedis", redis.port, shownPath(redis.directory)),
  };
}

/** Resolves with the first service that ends by itself. */
async function firstEnd(running) {
  const settled = running.filter(({ isTrial }) => isTrial !== true);
  return await Promise.race(
    settled.map(async (service) => ({ service, how: await service.exited })),
  );
}

function failureOf({ service, how }) {
  return new Failure(text("serviceDied", service.name, how, shownPath(logDirectory)));
}

function startApp(service, { context, life }) {
  const source =
    service === "playground" ? "simulator/src/playground/main.ts" : `apps/${service}/src/main.ts`;
  const bundle = join(context.bundles ?? "", `${service}.mjs`);
  const file = context.bundles !== undefined && existsSync(bundle) ? bundle : source;
  return startService({
    name: service,
    args: [isAbsolute(file) ? file : join(root, file)],
    env: serviceEnv(service, context),
    onLine: life.say,
  });
}

async function bringUp(services, { context, running, life }) {
  const started = services.map((place) => ({
    ...startApp(place.service, { context, life }),
    url: `${addressOf(place)}/ready`,
  }));
  running.push(...started);
  const over = new AbortController();
  const signal = AbortSignal.any([life.signal, over.signal]);
  const missing = new Set(started.map(({ name }) => name));
  const beganAt = performance.now();
  const progress = setInterval(() => {
    const seconds = Math.round((performance.now() - beganAt) / 1_000);
    const ready = started.length - missing.size;
    life.say(text("stillStarting", ready, started.length, [...missing].join(", "), seconds));
  }, progressMs);
  const waits = started.map(async (service) => {
    const ready = await untilReady(service, { url: service.url, deadlineMs: readyMs, signal });
    if (life.signal.aborted) throw new Stopped();
    if (!ready) {
      throw new Failure(text("notReady", service.name, readyMs / 1_000, shownPath(logDirectory)));
    }
    missing.delete(service.name);
  });
  const died = firstEnd(running).then((end) => {
    if (life.signal.aborted) throw new Stopped();
    throw failureOf(end);
  });
  try {
    await Promise.race([Promise.all(waits), died]);
  } finally {
    clearInterval(progress);
    over.abort();
  }
}

/** All that can be done at a time. The first one that fails ends the others. */
async function sideBySide(life, steps) {
  const over = new AbortController();
  const own = { ...life, signal: AbortSignal.any([life.signal, over.signal]) };
  const begun = steps.map(async (step) => await step(own));
  try {
    return await Promise.all(begun);
  } catch (error) {
    over.abort();
    await Promise.allSettled(begun);
    throw error;
  }
}

/** Tools of a person's own may need a sandbox; those of the playground do without. */
async function installPrograms(life, { env, plan }) {
  if (plan.redisUrl === undefined) await installProgram(redisProgram, life);
  if (process.platform !== "linux" || (isPlayground(env, plan) && !env.RUNNER_TOOLS)) return;
  await offerProgram(sandboxProgram, life);
}

async function prepare(life) {
  const env = { ...readEnvFile(join(home, ".env")), ...process.env };
  const plan = planFrom(env);
  await requireFree(plan.ports);
  if (plan.redisUrl !== undefined) await requireRedis(plan.redisUrl);
  await sideBySide(life, [
    (one) => installDependencies(one, isPlayground(env, plan) ? "playground" : "start"),
    (one) => installPrograms(one, { env, plan }),
  ]);
  // From here on only for data: what was installed above may be for all users. Services and Redis inherit it.
  process.umask(0o077);
  rmSync(logDirectory, { recursive: true, force: true });
  dataFolder("logs");
  await requireCredentials({ plan, env, life });
  return { env, plan, signingKey: callSigningKey(env), grantKey: grantKeyOf(env) };
}

// A service that dies is started again, as a supervisor would do it; one that cannot live ends the run.
const restartsInARow = 3;
const restartWindowMs = 60_000;

function mayRestart(name, deaths) {
  const since = Date.now() - restartWindowMs;
  deaths.push({ name, atMs: Date.now() });
  return (
    takesWork({ name }) &&
    deaths.filter((death) => death.name === name && death.atMs > since).length <= restartsInARow
  );
}

async function untilEnd(running, { context, life }) {
  const { signal } = life;
  const stopped = new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
  const deaths = [];
  for (;;) {
    const end = await Promise.race([stopped, firstEnd(running)]);
    if (end === undefined || signal.aborted) return;
    if (!running.includes(end.service)) continue; // it was replaced
    const { name } = end.service;
    if (!mayRestart(name, deaths)) throw failureOf(end);
    life.say(text("serviceRestarted", name, end.how));
    running[running.indexOf(end.service)] = startApp(name, { context, life });
  }
}

/** A service on a free port beside the present one; resolves once it is seen whether it can live. */
async function startTrial(name, { context, running, life }) {
  const port = await freePort();
  if (life.signal.aborted) throw new Stopped();
  const ports = context.plan.ports.map((place) =>
    place.service === name ? { ...place, port } : place,
  );
  const trial = startApp(name, { context: { ...context, plan: { ...context.plan, ports } }, life });
  running.push(Object.assign(trial, { isTrial: true }));
  const url = `${addressOf(ports.find(({ service }) => service === name))}/ready`;
  const over = new AbortController();
  void trial.exited.then(() => over.abort());
  const signal = AbortSignal.any([life.signal, over.signal]);
  const canLive = await untilReady(trial, { url, deadlineMs: readyMs, signal });
  if (life.signal.aborted) throw new Stopped();
  return { trial, canLive };
}

/** Lets a service end what it is at. */
async function retire(service, running) {
  running.splice(running.indexOf(service), 1);
  await stopService(service, graceMs.replaced);
}

/**
 * After a change of files: starts each service that loads them beside the present one. If all can live, the present
 * ones end in good order and start anew, one after the other; else they stay. Ends early when everything is stopped.
 */
async function reload(files, names, { context, running, life }) {
  // A first configuration may name models whose SDK the playground goes without.
  const isFirst = context.beganAsPlayground && !isPlayground(context.env, context.plan);
  if (isFirst) {
    await installDependencies(life, "start");
    await installPrograms(life, context);
    context.bundles = await bundledApps(life);
  }
  const trials = [];
  let refusing;
  for (const name of names) {
    const { trial, canLive } = await startTrial(name, { context, running, life });
    trials.push(trial);
    refusing ??= canLive ? undefined : name;
    if (refusing !== undefined) break;
  }
  for (const name of refusing === undefined ? names : []) {
    await retire(
      running.find((one) => one.name === name && one.isTrial !== true),
      running,
    );
    if (life.signal.aborted) throw new Stopped();
    running.push(startApp(name, { context, life }));
    const url = `${addressOf(context.plan.ports.find(({ service }) => service === name))}/ready`;
    await untilReady(running.at(-1), { url, deadlineMs: readyMs, signal: life.signal });
  }
  for (const trial of trials) await retire(trial, running);
  if (life.signal.aborted) return;
  life.say(
    refusing === undefined
      ? text("reloaded", files, names.join(", "))
      : text("notReloaded", files, refusing),
  );
}

/** What a trial has said, the service that takes its place would say again. `end`: from then on all is said. */
function sayingOnce({ signal, say }) {
  const said = new Set();
  let isOver = false;
  const once = (line) => {
    if (isOver || !said.has(line)) say(line);
    said.add(line);
  };
  const end = () => {
    isOver = true;
    said.clear();
  };
  return { once: { signal, say: once }, end };
}

async function runEverything(life, running) {
  const { env, plan, signingKey, grantKey } = await prepare(life);
  life.say(text("starting"));
  const beganAsPlayground = isPlayground(env, plan);
  const [redis, bundles] = await sideBySide(life, [
    ({ signal }) => openRedis({ plan, running, signal }),
    (one) => bundledApps(one),
  ]);
  const context = {
    env,
    plan,
    bundles,
    redisUrl: redis.url,
    modelPort: await freePort(),
    signingKey,
    grantKey,
    beganAsPlayground,
  };
  const seen = seenFiles(env);
  await bringUp(plan.ports, { context, running, life });
  console.log(summaryOf({ plan, redis: redis.shown, logs: shownPath(logDirectory) }));
  const unwatch = watchFiles(seen, async (files, names) => {
    const { once, end } = sayingOnce(life);
    await reload(files, names, { context, running, life: once }).catch((error) => {
      if (!(error instanceof Stopped)) life.say(String(error));
    });
    end();
  });
  try {
    await untilEnd(running, { context, life });
  } finally {
    unwatch();
  }
}

await live(
  async (life) => {
    const release = claimDataFolder();
    const running = [];
    try {
      await runEverything(life, running);
    } finally {
      if (running.length > 0) life.say(text("stopping"));
      await stopAll(running);
      rmSync(redisUrlFile(), { force: true });
      release();
    }
    life.say(text("stopped"));
    return 0;
  },
  { stoppedCode: 0 },
);
