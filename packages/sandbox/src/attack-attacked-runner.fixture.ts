import { spawn, type ChildProcess } from "node:child_process";
import { env } from "node:process";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import type { AttackedPlace } from "./attack-place.fixture.ts";
import type { AttackOrder, AttackReply } from "./attack-runner.fixture.ts";

/** Whether a level keeps an attacker in. */
export function isContained(level: AttackedPlace["level"]): boolean {
  return level === "sandbox";
}

/** What the runner says. */
export type Message =
  | AttackReply
  | { ready: boolean; reason?: string }
  | { mark: string; threw: string };

export interface AttackedRunnerOptions {
  place: AttackedPlace;
  uid: number | undefined;
}

/** The process under attack, as the judge sees it. */
export class AttackedRunner {
  readonly #process: ChildProcess;
  readonly #waiting = new Map<string, (message: Message) => void>();
  readonly #died: Promise<string>;
  #stderr = "";
  dead = false;

  constructor({ place, uid }: AttackedRunnerOptions) {
    const { directory } = place;
    const identity = uid === undefined ? {} : { uid, gid: uid };
    const contained = isContained(place.level);
    // A program in the runner itself gets a small heap, so that it and not the machine is what breaks.
    const flags = contained ? [] : ["--max-old-space-size=1000"];
    const script = fileURLToPath(new URL("./attack-runner.fixture.ts", import.meta.url));
    this.#process = spawn(
      process.execPath,
      [...flags, "--no-warnings", script, JSON.stringify(place)],
      {
        stdio: ["pipe", "ignore", "pipe", "ignore", "pipe"],
        env: {
          PATH: env["PATH"],
          TMPDIR: directory,
          HOME: directory,
          API_KEY: `ENV-SECRET-${process.pid}abc`,
        },
        cwd: directory,
        ...identity,
      },
    );
    this.#process.stdin?.on("error", () => {});
    this.#process.stderr?.on(
      "data",
      (text: Buffer) => (this.#stderr = (this.#stderr + text.toString()).slice(-600)),
    );
    this.#died = new Promise((resolve) => {
      this.#process.on("exit", (code, signal) => {
        this.dead = true;
        resolve(
          `the runner died: ${signal ?? `exit code ${code}`} ${contained ? this.#stderr : ""}`.trim(),
        );
      });
    });
    const reports = this.#process.stdio[4] as Readable; // a pipe, as asked for above
    createInterface({ input: reports }).on("line", (line) => this.#take(line));
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  #take(line: string): void {
    const message = JSON.parse(line) as Message; // what an attack writes here breaks the judge, loudly
    const key = "mark" in message ? message.mark : "ready";
    this.#waiting.get(key)?.(message);
  }

  /** The answer to something, or what became of the runner. */
  async answer(key: string, withinMs: number): Promise<Message | string> {
    const reply = new Promise<Message>((resolve) => this.#waiting.set(key, resolve));
    const { promise, resolve } = Promise.withResolvers<string>();
    const timer = setTimeout(
      () => resolve(`the runner gave no answer within ${withinMs} ms`),
      withinMs,
    );
    try {
      return await Promise.race([reply, this.#died, promise]);
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(key);
    }
  }

  send(message: AttackOrder): void {
    this.#process.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  async end(politely: boolean): Promise<void> {
    if (politely) {
      this.#process.stdin?.end();
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, 5_000);
      await Promise.race([this.#died, promise]);
      clearTimeout(timer);
    }
    this.#process.kill("SIGKILL");
    await this.#died;
  }
}
