import { mkdir, open, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "@larkline/process/telemetry";
import { systemClock } from "@larkline/protocol/clock";
import { type FeishuSimulator, parseSnapshot, type SimulatorSnapshot } from "../index.ts";

const messagesOfChat = 200;
const largestBytes = 8 * 1024 * 1024;
/** Cards that type change many times a second: the file is written at most this often. */
const writeEveryMs = 1_000;

/** Of images and files together, the latest first; older ones are gone after a restart. */
const largestMediaBytes = 64 * 1024 * 1024;

/** What an earlier playground has left. */
export interface Kept {
  snapshot?: SimulatorSnapshot;
  /** Of images and files, by key. */
  bytes?: ReadonlyMap<string, Uint8Array>;
  /** A file that could not be read lies here now. */
  setAside?: string;
}

function fileIn(folder: string): string {
  return join(folder, "playground.json");
}

/** One file for each image and file, named by its key. */
function mediaFolderIn(folder: string): string {
  return join(folder, "playground-media");
}

/** Reads the state of a data folder. A file that is damaged or too large is set aside, not lost. */
export async function readKeptState(folder: string): Promise<Kept> {
  const path = fileIn(folder);
  try {
    const { size } = await stat(path);
    const parsed =
      size > largestBytes ? undefined : parseSnapshot(JSON.parse(await readFile(path, "utf8")));
    if (parsed?.ok === true) {
      return { snapshot: parsed.value, bytes: await readMedia(folder, parsed.value) };
    }
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return {};
    if (!(error instanceof SyntaxError)) throw error;
  }
  const setAside = `${path}.damaged-${systemClock.now()}`;
  await rename(path, setAside);
  return { setAside };
}

/** Those that cannot be read are not there; their messages are. */
async function readMedia(
  folder: string,
  { media = [] }: SimulatorSnapshot,
): Promise<Map<string, Uint8Array>> {
  const bytes = new Map<string, Uint8Array>();
  for (const { key, sizeBytes } of media) {
    const read = await readFile(join(mediaFolderIn(folder), key)).catch(() => undefined);
    if (read?.byteLength === sizeBytes) bytes.set(key, read);
  }
  return bytes;
}

/** Keeps the state of a playground in its data folder, soon after each change. */
export class StateKeeper {
  readonly #simulator: FeishuSimulator;
  readonly #path: string;
  readonly #mediaFolder: string;
  /** Keys of the images and files that lie in their folder; not known before the first write. */
  #written: Set<string> | undefined;
  readonly #logger: Logger;
  readonly #stops: (() => void)[];
  #timer: (() => void) | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(simulator: FeishuSimulator, { folder, logger }: { folder: string; logger: Logger }) {
    this.#simulator = simulator;
    this.#path = fileIn(folder);
    this.#mediaFolder = mediaFolderIn(folder);
    this.#logger = logger;
    const change = (): void => {
      this.#timer ??= systemClock.after(writeEveryMs, () => {
        this.#timer = undefined;
        this.#write();
      });
    };
    this.#stops = [
      ...(["message", "user", "chat"] as const).map((name) => simulator.on(name, change)),
      // What people work with changes by calls alone.
      simulator.on("apiCall", ({ method }) => {
        if (method !== "GET") change();
      }),
    ];
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
    const state = stateOf(this.#simulator);
    this.#writing = this.#writing
      .then(async () => await this.#keep(state))
      .catch((err: unknown) =>
        this.#logger.warn({ err, path: this.#path }, "the playground's state is not kept"),
      );
  }

  async #keep({ text, media }: State): Promise<void> {
    await this.#writeMedia(media);
    await replace(this.#path, text);
    await this.#removeMedia(media);
  }

  /** Images and files never change: each is written once. */
  async #writeMedia(media: ReadonlyMap<string, Uint8Array>): Promise<void> {
    if (this.#written === undefined) {
      await mkdir(this.#mediaFolder, { recursive: true, mode: 0o700 });
      this.#written = new Set(await readdir(this.#mediaFolder));
    }
    for (const [key, bytes] of media) {
      if (this.#written.has(key)) continue;
      await replace(join(this.#mediaFolder, key), bytes);
      this.#written.add(key);
    }
  }

  /** Once no state names them any more. */
  async #removeMedia(media: ReadonlyMap<string, Uint8Array>): Promise<void> {
    for (const key of this.#written ?? []) {
      if (media.has(key)) continue;
      await rm(join(this.#mediaFolder, key), { force: true });
      this.#written?.delete(key);
    }
  }
}

interface State {
  text: string;
  media: ReadonlyMap<string, Uint8Array>;
}

/** As many of the latest messages as the file may hold, with the bytes of their images and files. */
function stateOf(simulator: FeishuSimulator): State {
  for (let count = messagesOfChat; ; count = Math.floor(count / 2)) {
    const snapshot = simulator.snapshot(count);
    const text = JSON.stringify(snapshot);
    if (count === 0 || Buffer.byteLength(text) <= largestBytes) {
      return { text, media: mediaOf(simulator, snapshot) };
    }
  }
}

function mediaOf(
  simulator: FeishuSimulator,
  { media = [] }: SimulatorSnapshot,
): Map<string, Uint8Array> {
  const kept = new Map<string, Uint8Array>();
  let room = largestMediaBytes;
  for (const { key } of media.toReversed()) {
    const bytes = simulator.media(key)?.bytes;
    // A file that has only a size has no bytes to keep.
    if (!(bytes instanceof Uint8Array) || bytes.byteLength > room) continue;
    room -= bytes.byteLength;
    kept.set(key, bytes);
  }
  return kept;
}

/** Every reader, also after a crash of this process, finds the old file or the new one. */
async function replace(path: string, content: string | Uint8Array): Promise<void> {
  const draft = `${path}.tmp`;
  try {
    const handle = await open(draft, "w", 0o600);
    try {
      await handle.writeFile(content);
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
