import { open, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "@larkline/process/telemetry";
import { systemClock } from "@larkline/protocol";
import { type FeishuSimulator, parseSnapshot, type SimulatorSnapshot } from "../index.ts";

const messagesOfChat = 200;
const largestBytes = 8 * 1024 * 1024;
/** Cards that type change many times a second: the file is written at most this often. */
const writeEveryMs = 1_000;

/** What an earlier playground has left. */
interface Kept {
  snapshot?: SimulatorSnapshot;
  /** A file that could not be read lies here now. */
  setAside?: string;
}

function fileIn(folder: string): string {
  return join(folder, "playground.json");
}

/** Reads the state of a data folder. A file that is damaged or too large is set aside, not lost. */
export async function readKeptState(folder: string): Promise<Kept> {
  const path = fileIn(folder);
  try {
    const { size } = await stat(path);
    const parsed = size > largestBytes ? undefined : parseSnapshot(JSON.parse(await readFile(path, "utf8")));
    if (parsed?.ok === true) return { snapshot: parsed.value };
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return {};
    if (!(error instanceof SyntaxError)) throw error;
  }
  const setAside = `${path}.damaged-${systemClock.now()}`;
  await rename(path, setAside);
  return { setAside };
}

/** Keeps the state of a playground in its data folder, soon after each change. */
export class StateKeeper {
  readonly #simulator: FeishuSimulator;
  readonly #path: string;
  readonly #logger: Logger;
  readonly #stops: (() => void)[];
  #timer: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(simulator: FeishuSimulator, { folder, logger }: { folder: string; logger: Logger }) {
    this.#simulator = simulator;
    this.#path = fileIn(folder);
    this.#logger = logger;
    const change = (): void => {
      this.#timer ??= systemClock.after(writeEveryMs, () => {
        this.#timer = undefined;
        this.#write();
      });
    };
    this.#stops = (["message", "user", "chat"] as const).map((name) => simulator.on(name, change));
    change();
  }

  /** Writes the latest state. */
  async close(): Promise<void> {
    for (const stop of this.#stops) stop();
    this.#timer?.();
    this.#write();
    await this.#writing;
  }

  #write(): void {
    const text = textOf(this.#simulator);
    this.#writing = this.#writing
      .then(async () => await replace(this.#path, text))
      .catch((err: unknown) => this.#logger.warn({ err, path: this.#path }, "the playground's state is not kept"));
  }
}

/** As many of the latest messages as the file may hold. */
function textOf(simulator: FeishuSimulator): string {
  for (let count = messagesOfChat; ; count = Math.floor(count / 2)) {
    const text = JSON.stringify(simulator.snapshot(count));
    if (count === 0 || Buffer.byteLength(text) <= largestBytes) return text;
  }
}

/** Every reader, also after a crash of this process, finds the old file or the new one. */
async function replace(path: string, text: string): Promise<void> {
  const draft = `${path}.tmp`;
  try {
    const handle = await open(draft, "w", 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}
