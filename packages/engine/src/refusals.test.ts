import { startModelServer, type NormalisedRequest, type ScriptedReply } from "@larkline/testkit";
import { defineTool } from "@larkline/tool-kit";
import { expect, it, onTestFinished } from "vitest";
import { createEngine, openai } from "./index.ts";

// A vendor that refuses by a rule that it does not name: no conversation may die of it.

const word = "tulip-9371";

/** A number from 0 to 1, the next one of its seed. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 3_266_489_917) >>> 0;
    return state / 2 ** 32;
  };
}

interface Rule {
  name: string;
  refuses: (request: NormalisedRequest) => boolean;
  /** Where the word stands. */
  word?: "message" | "result" | "answer" | "thoughts" | "arguments";
  /** What the vendor says. */
  says?: string;
}

const bodyText = ({ body }: NormalisedRequest): string => JSON.stringify(body);
const pictures = (request: NormalisedRequest): number =>
  bodyText(request).split('"image_url":{').length - 1;
const ids = ({ messages }: NormalisedRequest): string[] =>
  messages.flatMap(({ calls }) => calls.map(({ id }) => id));
const hasWord = (request: NormalisedRequest): boolean => bodyText(request).includes(word);
const hasKey = (key: string) => (request: NormalisedRequest) =>
  bodyText(request).includes(`"${key}":`);

const rules: readonly Rule[] = [
  { name: "a word of a person", word: "message", refuses: hasWord },
  { name: "a word of a result", word: "result", refuses: hasWord },
  { name: "a word of an answer", word: "answer", refuses: hasWord },
  { name: "a word of a thought", word: "thoughts", refuses: hasWord },
  { name: "a word in arguments", word: "arguments", refuses: hasWord },
  { name: "every picture", refuses: (request) => pictures(request) > 0 },
  {
    name: "every picture, and says so",
    refuses: (request) => pictures(request) > 0,
    says: "Unsupported image",
  },
  { name: "two pictures", refuses: (request) => pictures(request) > 1 },
  {
    name: "ids that are not its own",
    refuses: (request) => ids(request).some((id) => !/^[A-Za-z0-9]{9}$/.test(id)),
  },
  {
    name: "long ids",
    refuses: (request) => ids(request).some((id) => id.length > 12),
    says: "bad tool_call_id",
  },
  { name: "a keyword of a schema", refuses: hasKey("format") },
  {
    name: "closed objects",
    refuses: hasKey("additionalProperties"),
    says: "Invalid schema for function",
  },
  { name: "a field of the request", refuses: hasKey("stream_options") },
  { name: "the temperature", refuses: hasKey("temperature"), says: "temperature is not permitted" },
  { name: "thoughts that come back", refuses: hasKey("reasoning_content") },
  {
    name: "thoughts, and says so",
    refuses: hasKey("reasoning_content"),
    says: "reasoning is not allowed",
  },
  {
    name: "a result of more than 40 characters",
    refuses: ({ messages }) =>
      messages.some(({ results }) =>
        results.some(({ content }) => content.length > 40 && !content.startsWith("[")),
      ),
  },
  {
    name: "a picture beside a call",
    refuses: (request) => pictures(request) > 0 && ids(request).length > 0,
  },
  {
    name: "a word while a tool is used",
    word: "result",
    refuses: (request) => hasWord(request) && ids(request).length > 0,
  },
  {
    name: "a word, in the words of a filter",
    word: "result",
    refuses: hasWord,
    says: "Content Exists Risk",
  },
];

const png =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABh6FO1AAAAABJRU5ErkJggg==";

/** A conversation of five messages with a vendor of this rule. */
async function conversation(rule: Rule, seed: number) {
  const random = randomOf(seed);
  const ran = new Map<string, number>();
  const lookup = defineTool({
    name: "lookup",
    description: "Looks something up.",
    input: {
      type: "object",
      properties: { what: { type: "string", format: "uri" } },
      required: ["what"],
      additionalProperties: false,
    } as const,
    effect: "once",
    run: ({ what }) => {
      ran.set(what, (ran.get(what) ?? 0) + 1);
      return `${rule.word === "result" ? word : "found"} ${"and more ".repeat(random() < 0.8 ? 6 : 1)}`;
    },
  });
  let calls = 0;
  /** Requests of each step. */
  const perStep: number[] = [];
  let refused = 0;
  const script = (request: NormalisedRequest): ScriptedReply => {
    perStep.push((perStep.pop() ?? 0) + 1);
    if (rule.refuses(request)) {
      refused += 1;
      return { fault: { kind: "status", status: 400, message: rule.says ?? "Bad Request" } };
    }
    perStep.push(0);
    const last = request.messages.at(-1);
    const thinking = { text: rule.word === "thoughts" ? word : "hm" };
    if (last?.role === "user" && last.text.includes("look")) {
      calls += 1;
      const what = `urn:${rule.word === "arguments" ? word : "a"}:${calls}`;
      return {
        thinking,
        calls: [{ id: `functions.lookup:${calls}`, name: "lookup", arguments: { what } }],
      };
    }
    return { thinking, text: rule.word === "answer" ? `an ${word}` : "an answer" };
  };
  const server = await startModelServer({ script });
  const engine = createEngine({
    agents: { default: { model: "openai/m", temperature: 0.5 } },
    models: {
      openai: openai({
        api: "chat",
        apiKey: "k",
        baseUrl: `${server.url}/v1`,
        models: [{ id: "m", contextWindow: 100_000, maxOutputTokens: 4_000, supportsVision: true }],
      }),
    },
    tools: [lookup],
  });
  onTestFinished(async () => {
    await engine.close();
    await server.close();
  });
  const said: string[] = [];
  let warned = 0;
  for (let turn = 0; turn < 5; turn += 1) {
    perStep.push(0);
    const text = `${random() < 0.5 || turn === 1 ? "look" : "say"} ${turn}${turn === 2 && rule.word === "message" ? ` ${word}` : ""}`;
    const image = {
      type: "input_image" as const,
      detail: "auto" as const,
      image_url: `data:image/png;base64,${png}`,
    };
    const content = [
      { type: "input_text" as const, text },
      ...(random() < 0.6 || turn === 1 ? [image] : []),
    ];
    const { output, error, warnings } = await ended(
      engine.run("s", [{ role: "user" as const, content }]),
    );
    said.push(error ?? output);
    warned += warnings;
  }
  return { said, ran: [...ran.values()], most: Math.max(...perStep), refused, warned };
}

/** How a run ends, and how often it says that something was left out. */
async function ended(run: ReturnType<ReturnType<typeof createEngine>["run"]>) {
  let output = "";
  let error: string | undefined;
  let warnings = 0;
  for await (const { event } of run) {
    if (event.type === "error") error = event.code;
    if (event.type === "text") output = event.text;
    if (event.type === "warning" && event.code === "left_out") warnings += 1;
  }
  return { output, error, warnings };
}

it.each(rules.map((rule, seed) => ({ ...rule, seed })))(
  "a vendor that refuses $name ends no conversation",
  async ({ seed, ...rule }) => {
    const { said, ran, most, refused, warned } = await conversation(rule, seed);
    expect(refused).toBeGreaterThan(0);
    expect(warned > 0).toBe(rule.word !== "message");
    expect(ran.filter((times) => times > 1)).toEqual([]);
    expect(most).toBeLessThanOrEqual(3);
    expect(said.at(-1)).toContain("an ");
    // A message of a person that the vendor refuses is the one that gets no answer.
    expect(said.filter((one) => !one.startsWith("an "))).toEqual(
      rule.word === "message" ? ["api_bad_request"] : [],
    );
  },
);
