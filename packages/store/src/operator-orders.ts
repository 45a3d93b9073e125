import { jsonParserOf, SessionKey } from "@larkline/protocol";
import { ApprovalId } from "@larkline/protocol/approval";
import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

// Orders of operators are one stream, the only thing that the console may write which workers act upon. A worker takes
// an order once: a worker that dies in the middle leaves it uncertain, and the console says so; it is not repeated.

const givenId = Type.String({ minLength: 1, maxLength: 600 });
const about = {
  session: Type.Optional(SessionKey),
  turnId: Type.Optional(givenId),
  app: Type.Optional(givenId),
  letterId: Type.Optional(givenId),
  callId: Type.Optional(givenId),
  tool: Type.Optional(givenId),
  chatId: Type.Optional(givenId),
};

const amount = (maximum: number) => Type.Optional(Type.Integer({ minimum: 1, maximum }));

const AgentBudget = Type.Optional(
  Type.Object(
    {
      tokens: Type.Optional(Type.Integer({ minimum: 0, maximum: 1e15 })),
      usd: Type.Optional(Type.Number({ minimum: 0, maximum: 1e6 })),
    },
    { additionalProperties: false },
  ),
);

/** What a version of an agent says in place of the file. What is absent is as in the file. */
export const AgentChange = Type.Object(
  {
    instructions: Type.Optional(Type.String({ minLength: 1, maxLength: 20_000 })),
    /** One of those that people may choose there. */
    model: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
    tools: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 500 }),
    ),
    limits: Type.Optional(
      Type.Object(
        {
          maxIterations: amount(1_000),
          maxOutputTokens: amount(10_000_000),
          maxCallsPerStep: amount(1_000),
          toolTimeoutMs: amount(86_400_000),
        },
        { additionalProperties: false },
      ),
    ),
    /** What the agent may spend in a day or month. */
    budgets: Type.Optional(
      Type.Object({ day: AgentBudget, month: AgentBudget }, { additionalProperties: false }),
    ),
  },
  { additionalProperties: false },
);
export type AgentChange = Static<typeof AgentChange>;

/** A server of models that operators add at the console, as a provider of the configuration. */
export const AddedProvider = Type.Object(
  {
    name: Type.String({ pattern: "^[a-z][a-z0-9-]{0,31}$" }),
    /** The interface that it speaks. */
    type: Type.Enum(["anthropic", "openai", "openai-responses"]),
    /** Absent: the vendor's own address. */
    baseUrl: Type.Optional(Type.String({ pattern: "^https?://[^\\s]+$", maxLength: 500 })),
    /** Their ids at the server. */
    models: Type.Array(Type.String({ pattern: "^[^\\s,]{1,150}$" }), { minItems: 1, maxItems: 50 }),
    /** Tokens that a model of it takes where the table of models does not know it. */
    contextWindow: Type.Optional(Type.Integer({ minimum: 1_000, maximum: 10_000_000 })),
  },
  { additionalProperties: false },
);
export type AddedProvider = Static<typeof AddedProvider>;

/** What an operator wants done. The console asks for it, a worker does it and keeps a record of who asked. */
export const OperatorOrder = Type.Object({
  v: Type.Literal(1),
  /** The operator, for the audit log: `console`, and behind a colon the name that they gave when they signed in. */
  by: Type.String({ minLength: 1, maxLength: 128 }),
  act: Type.Union([
    /** Stops the turn of the message with this number; one that waits is dropped. */
    Type.Object({
      do: Type.Literal("cancel"),
      session: SessionKey,
      seq: Type.Integer({ minimum: 0 }),
    }),
    Type.Object({ do: Type.Literal("reset"), session: SessionKey }),
    Type.Object({ do: Type.Literal("drop"), session: SessionKey }),
    Type.Object({
      do: Type.Enum(["retry_letter", "discard_letter"]),
      session: SessionKey,
      letterId: givenId,
    }),
    Type.Object({ do: Type.Literal("revoke_rule"), app: givenId, ruleId: givenId }),
    /** What a person has let a bot do as them. */
    Type.Object({ do: Type.Literal("end_grant"), app: givenId, openId: givenId }),
    Type.Object({
      do: Type.Enum(["pause_schedule", "resume_schedule", "delete_schedule"]),
      schedule: givenId,
    }),
    Type.Object({
      do: Type.Literal("decide"),
      app: givenId,
      approvalId: ApprovalId,
      word: Type.Enum(["approve", "reject"]),
      /** Of the arguments that the operator was shown. */
      argumentsHash: givenId,
    }),
    Type.Object({
      do: Type.Enum(["pause", "resume"]),
      what: Type.Enum(["agent", "tool"]),
      name: givenId,
    }),
    Type.Object({
      do: Type.Literal("change_agent"),
      agent: givenId,
      /** Number of the version that the operator has seen; 0: the file. */
      base: Type.Integer({ minimum: 0 }),
      change: AgentChange,
      /** Why, for the other operators. */
      note: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
    }),
    Type.Object({
      do: Type.Literal("set_provider"),
      provider: AddedProvider,
      /** Sealed for workers. Absent: the key that it has at this address stays. */
      sealedKey: Type.Optional(Type.String({ maxLength: 10_000 })),
    }),
    Type.Object({ do: Type.Literal("remove_provider"), name: givenId }),
    /** Asks a model for a word. `model`: `<provider>/<id>`; absent: the one of agents without one of their own. */
    Type.Object({ do: Type.Literal("test_model"), model: Type.Optional(givenId) }),
    /** Looks at an app on the platform, as `npm run doctor` does. */
    Type.Object({ do: Type.Literal("check_app"), app: givenId }),
    /** Of what the console does itself: a record in the audit log, before it does it. */
    Type.Object({
      do: Type.Literal("note"),
      kind: Type.Enum(["content_shown", "letter_retried", "letter_discarded"]),
      ...about,
    }),
  ]),
});
export type OperatorOrder = Static<typeof OperatorOrder>;

/** What one kind of order says. */
export type OrderAct<D extends OperatorOrder["act"]["do"]> = Extract<
  OperatorOrder["act"],
  { do: D }
>;

const names = Type.Array(Type.String({ maxLength: 200 }), { maxItems: 2_000 });
const said = Type.String({ maxLength: 600 });

/** An app as the platform knows it, as far as a worker could read that. */
const CheckedApp = Type.Object({
  bot: Type.Optional(Type.Object({ name: said, status: said })),
  /** Why the platform does not answer the app: nothing else is known then. */
  problem: Type.Optional(said),
  /** Granted to the app itself. */
  scopes: Type.Optional(names),
  /** A version of it is in use. */
  isPublished: Type.Optional(Type.Boolean()),
  events: Type.Optional(names),
  callbacks: Type.Optional(names),
  /** Whether a long connection can be opened, and why not. */
  connection: Type.Optional(Type.Object({ isOpen: Type.Boolean(), problem: Type.Optional(said) })),
});
export type CheckedApp = Static<typeof CheckedApp>;

/** What came of an order. `nothing`: there was nothing to do it to; `conflict`: another operator was there before. */
export const OrderResult = Type.Object({
  result: Type.Enum(["done", "nothing", "full", "not_possible", "late", "conflict", "in_use"]),
  /** The turn that a reset has ended. */
  turnId: Type.Optional(Type.String()),
  /** The agents because of which it is `in_use`. */
  agents: Type.Optional(Type.Array(Type.String(), { maxItems: 1_000 })),
  /** What a test of a model has found. */
  test: Type.Optional(
    Type.Object({
      /** The model that was asked. */
      model: Type.String(),
      /** What it said; absent: it has failed. */
      answer: Type.Optional(Type.String()),
      /** Why it has failed, and the vendor's own words. */
      code: Type.Optional(Type.String()),
      message: Type.Optional(Type.String()),
      tookMs: Type.Integer({ minimum: 0 }),
    }),
  ),
  /** What a look at an app has found. */
  app: Type.Optional(CheckedApp),
});
export type OrderResult = Static<typeof OrderResult>;

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
