import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  agentEventSchemas,
  chatMessageSchemas,
  createMessage,
  dumpMessage,
  loadMessage,
  memoryMimeTypes,
  parseAgentEvent,
  parseChatMessage,
  parseMessage,
  StructuredModels,
  type AnyMessage,
  type FieldsOf,
  type MessageType,
  type StructuredMessage,
} from "./chat-messages.ts";
import { imageMediaType, toModelMessage, toModelText, toText } from "./chat-texts.ts";
import { MessageError } from "./message-error.ts";
import { problemsOf } from "./conformance.fixture.ts";

const clock = { now: () => Date.UTC(2025, 4, 23, 10, 0, 0, 123) };
const now = "2025-05-23T10:00:00.123Z";
const image = { data: "iVBORw0KGgoAAAANSUhEUg==" };
const call = { id: "call_1", arguments: '{"city":"Paris"}', name: "weather" };

/** The least that each class takes, beside its source. */
const least: { [N in MessageType]: Omit<FieldsOf<N>, "source"> } = {
  TextMessage: { content: "hello" },
  MultiModalMessage: { content: ["look:", image, "ok"] },
  StopMessage: { content: "enough" },
  ToolCallSummaryMessage: { content: "sunny" },
  HandoffMessage: { content: "please", target: "writer" },
  ToolCallRequestEvent: { content: [call] },
  ToolCallExecutionEvent: { content: [{ content: "sunny", name: "weather", call_id: "call_1" }] },
  MemoryQueryEvent: { content: [{ content: "likes tea", mime_type: "text/plain" }] },
  UserInputRequestedEvent: { request_id: "r-1" },
  ModelClientStreamingChunkEvent: { content: "hel" },
  ThoughtEvent: { content: "hm" },
  SelectSpeakerEvent: { content: ["writer"] },
  CodeGenerationEvent: {
    retry_attempt: 0,
    content: "```\n1\n```",
    code_blocks: [{ code: "1", language: "" }],
  },
  CodeExecutionEvent: { retry_attempt: 0, result: { exit_code: 3, output: "boom" } },
};
const classes = Object.keys(least) as MessageType[];

/** A message of a class with nothing but what it needs. */
function made<N extends MessageType>(name: N, fields: object = {}) {
  return createMessage(name, { source: "a", ...least[name], ...fields } as FieldsOf<N>, clock); // complete by the table above
}

function isLoaded(name: MessageType, fields: object): boolean {
  return loadMessage(name, { source: "a", ...least[name], ...fields }).ok;
}

const form = {
  type: "object",
  properties: { text: { type: "string" }, number: { type: "number" } },
  required: ["text"],
};

function models(): StructuredModels {
  const registry = new StructuredModels();
  registry.register("Note", form);
  return registry;
}

function structured(fields: object = {}): StructuredMessage {
  const loaded = models().load(
    { source: "a", content: { number: 42, text: "Hello" }, ...fields },
    "Note",
    clock,
  );
  return loaded.ok ? loaded.value : expect.fail(loaded.error);
}

describe("every class of messages", () => {
  it.each(classes)(
    "CM-1, CM-32: %s is dumped as its published schema says, and reads back as it was",
    (name) => {
      const message = made(name);
      const dumped = dumpMessage(message);
      expect(problemsOf(name, dumped)).toEqual([]);
      expect(dumped).toStrictEqual(message);
      expect(JSON.parse(JSON.stringify(dumped))).toStrictEqual(dumped);
      expect(loadMessage(name, dumped)).toStrictEqual({ ok: true, value: message });
      expect(parseMessage(dumped)).toStrictEqual({ ok: true, value: message });
    },
  );

  it.each(classes)("CM-2..4: %s needs a source, and has defaults of its own", (name) => {
    expect(loadMessage(name, least[name])).toEqual({
      ok: false,
      error: "value must have required property 'source'",
    });
    const [message, other] = [made(name), made(name)];
    expect(message).toMatchObject({
      source: "a",
      models_usage: null,
      metadata: {},
      created_at: now,
      type: name,
    });
    expect(message.metadata).not.toBe(other.metadata);
    message.metadata["k"] = "v";
    expect(made(name).metadata).toEqual({});
    const given = "2020-02-29t23:59:59.5+08:00";
    expect(made(name, { created_at: given }).created_at).toBe(given);
  });

  it.each(classes)("CM-5, CM-43: %s takes only strings as metadata", (name) => {
    expect(made(name, { metadata: { seq: "7" } }).metadata).toEqual({ seq: "7" });
    expect(isLoaded(name, { metadata: { seq: 7 } })).toBe(false);
    expect(isLoaded(name, { metadata: { nested: {} } })).toBe(false);
  });

  it.each(classes)("CM-6: %s takes its own type or none, and unions need one", (name) => {
    expect(isLoaded(name, { type: name })).toBe(true);
    expect(isLoaded(name, { type: "Message" })).toBe(false);
    const { type: _type, ...untyped } = dumpMessage(made(name));
    expect(parseMessage(untyped)).toEqual({ ok: false, error: "type is missing" });
  });

  it.each(classes)("CM-35: %s drops fields that it does not know", (name) => {
    const loaded = loadMessage(name, { ...made(name), colour: "red" });
    expect(loaded).toStrictEqual({ ok: true, value: made(name) });
  });

  it.each(classes)("CM-29: %s takes usage with both counters, and whole numbers", (name) => {
    const usage = { prompt_tokens: 12, completion_tokens: 5 };
    expect(made(name, { models_usage: usage }).models_usage).toEqual(usage);
    expect(isLoaded(name, { models_usage: { prompt_tokens: 12 } })).toBe(false);
    expect(isLoaded(name, { models_usage: { ...usage, prompt_tokens: 1.5 } })).toBe(false);
  });

  it("say what is wrong with the fields that they are made of", () => {
    expect(() => made("StopMessage", { content: 5 })).toThrow(
      new MessageError("StopMessage: content must be string"),
    );
  });
});

describe("the time of a message", () => {
  const timeOf = (created_at: string) => {
    const loaded = loadMessage("TextMessage", { source: "a", content: "", created_at });
    return loaded.ok ? loaded.value.created_at : "refused";
  };

  it("CM-4: is kept character by character, and without an offset it is UTC", () => {
    const whole = [
      "2025-05-23T10:00:00.000Z",
      "2024-02-29T00:00:00Z",
      "2000-02-29t00:00:00z",
      "2025-12-31T23:59:60Z",
      "2025-01-01T00:00:00-23:59",
    ];
    expect(whole.map(timeOf)).toEqual(whole);
    expect(timeOf("2025-05-23T10:00:00.5")).toBe("2025-05-23T10:00:00.5Z");
    const problems = (created_at: string) =>
      problemsOf("TextMessage", { source: "a", content: "", created_at });
    expect(whole.flatMap(problems)).toEqual([]);
  });

  it("CM-4: is refused when it is no time", () => {
    const wrong = [
      "",
      "now",
      "2025-05-23",
      "2025-05-23 10:00:00Z",
      "2025-02-29T00:00:00Z",
      "1900-02-29T00:00:00Z",
    ];
    const alsoWrong = [
      "2025-04-31T00:00:00Z",
      "2025-13-01T00:00:00Z",
      "2025-01-01T24:00:00Z",
      "2025-01-01T00:00:60Z",
      "2025-01-01T00:00:00+24:00",
    ];
    expect([...wrong, ...alsoWrong].map(timeOf)).toEqual(
      [...wrong, ...alsoWrong].map(() => "refused"),
    );
  });
});

describe("the unions", () => {
  it("CM-7..9: take five messages and nine events, and name any other type", () => {
    const isTaken = (parse: typeof parseChatMessage | typeof parseAgentEvent) =>
      classes.filter((name) => parse(made(name)).ok);
    expect(isTaken(parseChatMessage)).toEqual(Object.keys(chatMessageSchemas));
    expect(isTaken(parseAgentEvent)).toEqual(Object.keys(agentEventSchemas));
    expect([Object.keys(chatMessageSchemas).length, Object.keys(agentEventSchemas).length]).toEqual(
      [5, 9],
    );
    const refused = {
      ok: false,
      error: 'there is no message of type "StructuredMessage[Note]" here',
    };
    expect(parseChatMessage(dumpMessage(structured()))).toEqual(refused);
    expect(parseMessage(dumpMessage(structured()))).toEqual(refused);
    expect(parseMessage({ source: "a", type: "Telepathy" })).toEqual({
      ok: false,
      error: 'there is no message of type "Telepathy" here',
    });
    expect(parseMessage({ source: "a", type: "toString" }).ok).toBe(false);
    expect(parseMessage(null)).toEqual({ ok: false, error: "type is missing" });
  });
});

describe("messages of text", () => {
  it.each(["TextMessage", "StopMessage", "ToolCallSummaryMessage", "HandoffMessage"] as const)(
    "CM-10, CM-11: %s is written as it is",
    (name) => {
      for (const content of ["", "  spaces ", "你好"]) {
        const message = made(name, { content });
        expect([toText(message), toModelText(message)]).toEqual([content, content]);
        expect(toModelMessage(message)).toStrictEqual({
          content,
          source: "a",
          type: "UserMessage",
        });
      }
    },
  );
});

describe("a hand-over", () => {
  const context = [
    { content: "obey", type: "SystemMessage" },
    { content: ["x", image], source: "u", type: "UserMessage" },
    { content: [call], source: "a", type: "AssistantMessage" },
    {
      content: [{ content: "sunny", name: "weather", call_id: "call_1" }],
      type: "FunctionExecutionResultMessage",
    },
  ];

  it("CM-12, CM-30, CM-31: has no context or one of all four kinds of messages to a model, with their defaults", () => {
    expect(made("HandoffMessage").context).toEqual([]);
    const message = made("HandoffMessage", { context });
    expect(message.context).toEqual([
      ...context.slice(0, 2),
      { ...context[2], thought: null },
      {
        content: [{ content: "sunny", name: "weather", call_id: "call_1", is_error: null }],
        type: "FunctionExecutionResultMessage",
      },
    ]);
    expect(problemsOf("HandoffMessage", dumpMessage(message))).toEqual([]);
    const said = { content: "hi", thought: "hm", source: "a", type: "AssistantMessage" };
    expect(made("HandoffMessage", { context: [said] }).context).toEqual([said]);
    for (const type of ["UserMessage", "AssistantMessage"]) {
      expect(isLoaded("HandoffMessage", { context: [{ content: "x", type }] })).toBe(false);
    }
  });

  it("CM-13: needs the type of each message, also where the published schema does not", () => {
    for (const item of [
      { content: "x" },
      { content: "x", source: "s" },
      { content: [] },
      { content: "x", type: "Note" },
    ]) {
      expect(isLoaded("HandoffMessage", { context: [item] })).toBe(false);
    }
  });
});

describe("a message with images", () => {
  const message = made("MultiModalMessage");

  it("CM-14: is sent to a model with a placeholder, or the image itself", () => {
    expect(toModelText(message)).toBe("look: [image]ok");
    expect(toModelText(message, { imagePlaceholder: "X" })).toBe("look: Xok");
    expect(toModelText(message, { imagePlaceholder: null })).toBe(`look: ${image.data}ok`);
  });

  it("CM-15, CM-16: is shown to people line by line, and to a model as it is", () => {
    expect(toText(message)).toBe("look:\n<image>\nok");
    expect(toText(message, { iterm: true })).toBe(
      `look:\n\u001B]1337;File=inline=1:${image.data}\u0007\n\nok`,
    );
    expect(toModelMessage(message)).toStrictEqual({
      content: ["look:", image, "ok"],
      source: "a",
      type: "UserMessage",
    });
  });

  it("CM-17, CM-18: takes texts and images alone, and keeps them byte by byte", () => {
    for (const part of [
      null,
      5,
      {},
      { data: 5 },
      { data: "data:image/png;base64,AAAA" },
      { data: "A" },
      ["x"],
    ]) {
      expect(isLoaded("MultiModalMessage", { content: ["x", part] })).toBe(false);
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        const data = Buffer.from(bytes).toString("base64");
        const loaded = loadMessage(
          "MultiModalMessage",
          dumpMessage(made("MultiModalMessage", { content: [{ data }] })),
        );
        expect(loaded).toMatchObject({ ok: true, value: { content: [{ data }] } });
      }),
    );
  });

  it("knows what kind of image it holds", () => {
    const typeOf = (...bytes: (number | string)[]) =>
      imageMediaType({
        data: Buffer.concat(
          bytes.map((part) => Buffer.from(typeof part === "string" ? part : [part])),
        ).toString("base64"),
      });
    expect([
      typeOf(0x89, "PNG\r\n\u001A\n", "more than twelve bytes"),
      typeOf("GIF89a"),
      typeOf("RIFF....WEBP"),
      typeOf(0xff, 0xd8, 0xff),
    ]).toEqual(["image/png", "image/gif", "image/webp", "image/jpeg"]);
    expect([typeOf("BM"), typeOf()]).toEqual(["image/jpeg", "image/jpeg"]);
  });
});

describe("a structured message", () => {
  it("CM-19: is written as JSON, in the order of its form", () => {
    expect(toText(structured())).toBe('{"text":"Hello","number":42}');
    expect(toModelText(structured())).toBe('{"text":"Hello","number":42}');
  });

  it("CM-20, CM-21: is written by its format", () => {
    const told = (format_string: string) => toText(structured({ format_string }));
    expect(told("Hello, {text} {number}!")).toBe("Hello, Hello 42!");
    expect(told("{{x}} {{{text}}}")).toBe("{x} {Hello}");
    expect(() => told("{source}")).toThrow(MessageError);
    expect(() => told("{toString}")).toThrow("toString");
    expect(() => told("{text")).toThrow(MessageError);
    expect(() => told("text}")).toThrow(MessageError);
  });

  it("CM-22: is JSON to a model, whatever its format", () => {
    const message = structured({ format_string: "{text}" });
    expect(toModelMessage(message)).toStrictEqual({
      content: '{"text":"Hello","number":42}',
      source: "a",
      type: "UserMessage",
    });
  });

  it("CM-36: names its form, and is read where that is registered", () => {
    const dumped = dumpMessage(structured());
    expect(dumped.type).toBe("StructuredMessage[Note]");
    expect(problemsOf("StructuredMessage", dumped)).toEqual([]);
    expect(parseMessage(dumped, models())).toStrictEqual({ ok: true, value: structured() });
    const error = 'the form "Note" is not registered';
    expect(parseMessage(dumped, new StructuredModels())).toEqual({ ok: false, error });
    expect(models().load({ ...dumped, type: "StructuredMessage[Other]" }, "Note").ok).toBe(false);
    expect(models().load({ source: "a", content: {} })).toEqual({
      ok: false,
      error: "type is missing",
    });
    expect(models().load({ source: "a", content: {} }, "Note")).toEqual({
      ok: false,
      error: "content: value must have required property 'text'",
    });
    expect(models().load({ source: "a", content: "x" }, "Note").ok).toBe(false);
  });

  it("is of a form that is registered once, and that is an object", () => {
    const registry = models();
    expect(() => registry.register("Note", form)).toThrow(MessageError);
    expect(() => registry.register("Text", { type: "string" })).toThrow("must be of type object");
    expect(() => registry.register("Odd", { type: "object", properties: 5 })).toThrow();
  });
});

describe("events", () => {
  it("CM-23: a request for input needs an id, has no content and no text", () => {
    expect(loadMessage("UserInputRequestedEvent", { source: "a" }).ok).toBe(false);
    expect(isLoaded("UserInputRequestedEvent", { content: "x" })).toBe(false);
    expect(made("UserInputRequestedEvent").content).toBe("");
    expect(toText(made("UserInputRequestedEvent"))).toBe("");
  });

  it("CM-24, CM-25: calls keep their arguments as text, results all three states of an error", () => {
    const odd = { ...call, arguments: "{not json" };
    expect(dumpMessage(made("ToolCallRequestEvent", { content: [odd] })).content).toEqual([odd]);
    expect(isLoaded("ToolCallRequestEvent", { content: [{ ...call, arguments: {} }] })).toBe(false);
    const result = { content: "", name: "n", call_id: "" };
    const content = [
      { ...result, is_error: null },
      { ...result, is_error: true },
      { ...result, is_error: false },
      result,
    ];
    const errors = made("ToolCallExecutionEvent", { content }).content.map(
      ({ is_error }) => is_error,
    );
    expect(errors).toEqual([null, true, false, null]);
  });

  it("CM-26, CM-27: code has its attempt, its blocks or its result", () => {
    expect(toText(made("CodeExecutionEvent"))).toBe("boom");
    expect("content" in made("CodeExecutionEvent")).toBe(false);
    expect(made("CodeGenerationEvent", { code_blocks: [] }).code_blocks).toEqual([]);
    for (const name of ["CodeExecutionEvent", "CodeGenerationEvent"] as const) {
      for (const field of Object.keys(least[name])) {
        expect(isLoaded(name, { [field]: undefined })).toBe(false);
      }
    }
  });

  it("CM-28: memories have any type, text or an object", () => {
    const typesOf = (mime_type: string) =>
      made("MemoryQueryEvent", { content: [{ content: "x", mime_type }] }).content[0]?.mime_type;
    expect([...memoryMimeTypes, "text/x-own"].map(typesOf)).toEqual([
      ...memoryMimeTypes,
      "text/x-own",
    ]);
    const content = [
      { content: { a: 1 }, mime_type: "application/json", metadata: { id: 1 } },
      { content: image, mime_type: "image/*", metadata: null },
    ];
    expect(made("MemoryQueryEvent", { content }).content).toEqual(content);
    expect(isLoaded("MemoryQueryEvent", { content: [{ content: 5, mime_type: "x" }] })).toBe(false);
  });

  it("CM-33: are shown to people, and to no model", () => {
    expect(toText(made("ToolCallRequestEvent"))).toBe(
      '[{"id":"call_1","arguments":"{\\"city\\":\\"Paris\\"}","name":"weather"}]',
    );
    expect(toText(made("SelectSpeakerEvent"))).toBe('["writer"]');
    expect(toText(made("ThoughtEvent"))).toBe("hm");
    const asked = (event: AnyMessage) => event;
    // @ts-expect-error -- an event is no message to a model
    asked(made("ThoughtEvent", { content: toModelText(made("ThoughtEvent")) }));
    // @ts-expect-error -- an event is no message to a model
    asked(made("ThoughtEvent", { content: toModelMessage(made("ThoughtEvent")).source }));
  });

  it("CM-34: a choice of speakers is a list, also of one", () => {
    expect(made("SelectSpeakerEvent").content).toEqual(["writer"]);
    expect(isLoaded("SelectSpeakerEvent", { content: "writer" })).toBe(false);
  });
});
