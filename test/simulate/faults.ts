import type { SeededRandom } from "../chaos/random.ts";
import type { Held } from "./lines.ts";
import { time, within } from "./time.ts";
import type { Process, World } from "./world.ts";

const names = [
  "kill",
  "kill",
  "kill",
  "stop",
  "hang",
  "hang",
  "close",
  "cut",
  "lose the answer",
  "lose the answer",
  "delay",
  "without Redis",
  "deliver again",
  "platform refuses",
  "model refuses",
  "model breaks off",
] as const;

/** What goes wrong in a run, and when: after so many pieces of traffic. */
interface Fault {
  atStep: number;
  name: (typeof names)[number];
  number: number;
}

/** Faults that come with what the model is asked. */
export interface ModelTrouble {
  /** Still to come, in its next answers. */
  next: ("status" | "cut")[];
  /** Kills the process that has asked the model, by the port of its line to it. */
  kill: (port: number) => void;
}

/** Brings the faults of a seed about. */
export class Faults {
  /** What has happened so far, for people. */
  readonly happened: string[] = [];
  readonly #world: World;
  readonly #random: SeededRandom;
  readonly #trouble: ModelTrouble;
  readonly #planned: Fault[];
  #steps = 0;
  /** Dies before the next piece of traffic. */
  #dying: Process | undefined;

  constructor(world: World, random: SeededRandom, trouble: ModelTrouble) {
    this.#world = world;
    this.#random = random;
    this.#trouble = trouble;
    trouble.kill = (port) => {
      const asking = [...world.processes].find(({ lines }) =>
        lines.some((line) => line.port === port),
      );
      if (asking !== undefined) this.#kill(asking);
    };
    const count = 1 + random.below(4);
    this.#planned = Array.from({ length: count }, (_, number) => ({
      atStep: random.below(450),
      name: random.pick(names),
      number,
    })).sort((one, other) => one.atStep - other.atStep);
  }

  /** Whether nothing goes wrong any more. */
  isOver(): boolean {
    return this.#planned.length === 0;
  }

  /** Nothing else goes wrong. */
  end(): void {
    this.#planned.length = 0;
  }

  /** Passes a piece of traffic on, if nothing goes wrong with it. */
  readonly pass = (held: Held): void => {
    this.#steps += 1;
    const dying = this.#dying;
    this.#dying = undefined;
    if (dying !== undefined) this.#kill(dying);
    if (held.owner.isDead) return;
    const [fault] = this.#planned;
    if (fault === undefined || fault.atStep > this.#steps) return held.pass();
    this.#planned.shift();
    const process = [...this.#world.processes].find(({ owner }) => owner === held.owner);
    if (process === undefined) return held.pass();
    this.#note(fault.name, held);
    this.#apply(fault.name, held, process);
  };

  #note(name: Fault["name"], held: Held): void {
    this.happened.push(`${time.now().toFixed(0)} ms: ${name} (${held.owner.name}: ${held.what})`);
  }

  #apply(name: Fault["name"], held: Held, process: Process): void {
    const random = this.#random;
    switch (name) {
      case "kill":
        if (random.below(2) === 0) return this.#kill(process);
        this.#dying = process;
        return held.pass({ lost: true });
      case "stop":
        held.owner.stoppedUntilMs = time.now() + 500 + random.below(16_000);
        return held.pass();
      case "hang":
        held.pass();
        return this.#hang(process);
      case "close":
        held.pass();
        return this.#close(process);
      case "cut":
        return held.cut();
      case "lose the answer":
        return held.pass({ lost: true });
      case "delay":
        return held.pass({ lateMs: 100 + random.below(8_000) });
      case "without Redis":
        this.#world.withoutRedis(200 + random.below(5_000));
        return;
      case "deliver again":
        held.pass();
        return this.#deliverAgain();
      case "platform refuses":
        held.pass();
        return this.#refuse();
      case "model refuses":
        held.pass();
        return void this.#trouble.next.push("status");
      case "model breaks off":
        held.pass();
        return void this.#trouble.next.push("cut");
    }
  }

  /** Connections to Redis hang open: one, or all that are open now. */
  #hang({ lines: [redis] }: Process): void {
    const how = this.#random.pick(["deaf", "dead"] as const);
    redis?.hang(
      how,
      this.#random.below(2) === 0 ? undefined : (count) => this.#random.below(count),
    );
  }

  #kill(process: Process): void {
    this.#world.end(process);
    this.#startAgain(process);
  }

  /** As a supervisor does. */
  #startAgain({ kind }: Process): void {
    time.after(100 + this.#random.below(3_000), () => void this.#world.begin(kind));
  }

  /** Ends a process as a deployment does, and starts another one. */
  #close(process: Process): void {
    this.#startAgain(process);
    const end = (): void => this.#world.end(process);
    time.after(15_000, end);
    process.started.then(
      (app) => within(process.owner, () => void app.close().then(end, end)),
      () => undefined, // it has ended
    );
  }

  #deliverAgain(): void {
    const { feishu } = this.#world;
    const all = [...feishu.chats.keys()].flatMap((chatId) => feishu.messages(chatId));
    const own = all.filter(({ senderType }) => senderType === "user");
    if (own.length === 0) return;
    const { messageId } = this.#random.pick(own);
    void feishu
      .redeliver(messageId, { freshEventId: this.#random.below(2) === 0 })
      .catch(() => undefined);
  }

  #refuse(): void {
    const random = this.#random;
    const action = random.pick([
      { kind: "respond", status: 500 },
      { kind: "lose_response" },
      { kind: "drop" },
      { kind: "delay", delayMs: random.below(5_000) },
    ] as const);
    this.#world.feishu.faults.add({
      match: { path: "/open-apis/" },
      times: 1 + random.below(4),
      action,
    });
  }
}
