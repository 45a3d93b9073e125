import { jsonParserOf, OperatorOrder, OrderResult } from "@larkline/protocol";
import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { type RedisConnection, runScript, script } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

// Orders of operators are one stream, the only thing that the console may write which workers act upon. A worker takes
// an order once: a worker that dies in the middle leaves it uncertain, and the console says so; it is not repeated.

/**
 * What came of handing an order in. `not_taken`: no worker has taken it, and none will. `uncertain`: a worker has taken
 * it and not said what came of it.
 */
export type OrderOutcome =
  | { state: "done"; result: OrderResult }
  | { state: "not_taken" }
  | { state: "uncertain" };

/** An order that no worker has taken for so long has been given up by its operator. */
const lateMs = 60_000;
const answerKeptMs = 3_600_000;
const lookMs = 25;
const maxWaiting = 1_000;
const taken = "taken";

const takeOrder = script("take-order");

const parseOrder = jsonParserOf(OperatorOrder);
const parseResult = jsonParserOf(OrderResult);

/** An order that a worker has taken: no other one does. */
interface TakenOrder {
  order: OperatorOrder | undefined;
  answer(result: OrderResult): Promise<void>;
}

/** The orders of operators on Redis. */
export class OperatorOrders {
  readonly #redis: RedisConnection;
  readonly #stream: string;
  readonly #answers: string;
  readonly #clock: Clock;

  constructor({ redis, namespace, clock = systemClock }: StoreOptions) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#clock = clock;
    this.#stream = keys.orders;
    this.#answers = keys.orderResultOf("");
  }

  /** Adds an order, and waits for its result for at most `patienceMs`. */
  async handIn(order: OperatorOrder, patienceMs: number): Promise<OrderOutcome> {
    const id = await this.#redis.xadd(
      this.#stream,
      "MAXLEN",
      "~",
      maxWaiting,
      "*",
      "o",
      JSON.stringify(order),
    );
    if (id === null) throw new Error("the order was not stored");
    const untilMs = this.#clock.monotonic() + patienceMs;
    while (this.#clock.monotonic() < untilMs) {
      const answered = await this.#answerTo(id);
      if (answered !== undefined) return answered;
      await pause(this.#clock, lookMs);
    }
    if ((await this.#redis.xdel(this.#stream, id)) === 1) return { state: "not_taken" };
    return (await this.#answerTo(id)) ?? { state: "uncertain" };
  }

  async #answerTo(id: string): Promise<OrderOutcome | undefined> {
    const text = await this.#redis.get(this.#answers + id);
    if (text === null || text === taken) return undefined;
    const parsed = parseResult(text);
    return parsed.ok ? { state: "done", result: parsed.value } : { state: "uncertain" };
  }

  /** Takes the oldest order and does it; false when there is none. Unreadable and late orders are dropped. */
  async serve(apply: (order: OperatorOrder) => Promise<OrderResult>): Promise<boolean> {
    const found = await this.take();
    if (found === undefined) return false;
    const { order, answer } = found;
    await answer(order === undefined ? { result: "not_possible" } : await apply(order));
    return true;
  }

  /**
   * Takes the oldest order, which the caller does and answers; undefined when there is none. A late one is answered
   * already, and the next one is taken. `order`: undefined where it cannot be read.
   */
  async take(): Promise<TakenOrder | undefined> {
    const values = { answers: this.#answers, taken, answerKeptMs, lateMs };
    const taking = await runScript(this.#redis, takeOrder, { orders: this.#stream }, values);
    const reply = taking as [string, string, number] | null; // shape fixed by the script
    if (reply === null) return undefined;
    const [id, text, isLate] = reply;
    const answer = async (result: OrderResult): Promise<void> =>
      void (await this.#redis.set(this.#answers + id, JSON.stringify(result), "PX", answerKeptMs));
    if (isLate === 1) {
      await answer({ result: "late" });
      return await this.take();
    }
    const order = parseOrder(text);
    return { order: order.ok ? order.value : undefined, answer };
  }
}

/** What one kind of order says. */
export type OrderAct<D extends OperatorOrder["act"]["do"]> = Extract<
  OperatorOrder["act"],
  { do: D }
>;
