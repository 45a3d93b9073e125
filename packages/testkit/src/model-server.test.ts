import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  demoScript,
  startModelServer,
  type ModelServer,
  type NormalisedMessage,
  type NormalisedRequest,
} from "./index.ts";

let server: ModelServer;
beforeEach(async () => {
  server = await startModelServer({ apiKey: "right" });
});
afterEach(() => server.close());

interface Answer {
  status: number;
  text: string;
}

async function post(
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const sent = { "x-api-key": "right", "content-type": "application/json", ...headers };
  const response = await fetch(`${server.url}${path}`, {
    method: "POST",
    headers: sent,
    body: JSON.stringify(body),
  });
  return { status: response.status, text: await response.text() };
}

const user = { role: "user", content: "hello" };
const anthropic = { model: "m", max_tokens: 10, stream: true, messages: [user] };
const chat = { model: "m", stream: true, messages: [user] };
const responses = { model: "m", stream: true, input: [user] };
const use = (id: string) => ({ type: "tool_use", id, name: "x", input: {} });
const result = (id: string) => ({ type: "tool_result", tool_use_id: id, content: "r" });
const turn = (role: string, ...content: object[]) => ({ role, content });
const schema = { type: "object" };

describe("what the vendors refuse", () => {
  const wrong: [string, object][] = [
    ["a missing max_tokens", { ...anthropic, max_tokens: undefined }],
    ["an unknown field", { ...anthropic, maxTokens: 1 }],
    ["sampling values in the newest API version", { ...anthropic, temperature: 1 }],
    ["an unknown role", { ...anthropic, messages: [turn("tool", result("a"))] }],
    [
      "an assistant at the start",
      { ...anthropic, messages: [turn("assistant", { type: "text", text: "a" }), user] },
    ],
    [
      "an assistant at the end",
      { ...anthropic, messages: [user, turn("assistant", { type: "text", text: "a" })] },
    ],
    ["an empty text block", { ...anthropic, messages: [turn("user", { type: "text", text: "" })] }],
    ["an unanswered call", { ...anthropic, messages: [user, turn("assistant", use("a")), user] }],
    [
      "a half answered batch",
      {
        ...anthropic,
        messages: [user, turn("assistant", use("a"), use("b")), turn("user", result("a"))],
      },
    ],
    ["a result without a call", { ...anthropic, messages: [turn("user", result("a"))] }],
    [
      "two results of a call",
      {
        ...anthropic,
        messages: [user, turn("assistant", use("a")), turn("user", result("a"), result("a"))],
      },
    ],
    [
      "text before a result",
      {
        ...anthropic,
        messages: [
          user,
          turn("assistant", use("a")),
          turn("user", { type: "text", text: "t" }, result("a")),
        ],
      },
    ],
    [
      "a call id used twice",
      {
        ...anthropic,
        messages: [
          user,
          turn("assistant", use("a")),
          turn("user", result("a")),
          turn("assistant", use("a")),
          turn("user", result("a")),
        ],
      },
    ],
    [
      "thinking without signature",
      {
        ...anthropic,
        messages: [user, turn("assistant", { type: "thinking", thinking: "t" }), user],
      },
    ],
    [
      "two tools of one name",
      { ...anthropic, tools: [1, 2].map(() => ({ name: "x", input_schema: schema })) },
    ],
    [
      "a tool schema that is no object",
      { ...anthropic, tools: [{ name: "x", input_schema: { type: "string" } }] },
    ],
    [
      "five cache marks",
      {
        ...anthropic,
        system: Array.from({ length: 5 }, () => ({ type: "text", text: "s", cache_control: {} })),
      },
    ],
  ];
  for (const [name, body] of wrong) {
    it(`Anthropic: ${name}`, async () => {
      expect((await post("/v1/messages", body)).status).toBe(400);
    });
  }

  const call = (id: string) => ({ id, type: "function", function: { name: "x", arguments: "{}" } });
  const wrongChat: [string, object][] = [
    [
      "an unanswered call",
      {
        ...chat,
        messages: [user, { role: "assistant", content: null, tool_calls: [call("a")] }, user],
      },
    ],
    [
      "a result without a call",
      { ...chat, messages: [user, { role: "tool", tool_call_id: "a", content: "r" }] },
    ],
    ["an empty tool list", { ...chat, tools: [] }],
    ["no content and no calls", { ...chat, messages: [{ role: "assistant", content: null }] }],
    [
      "two tools of one name",
      { ...chat, tools: [1, 2].map(() => ({ type: "function", function: { name: "x" } })) },
    ],
    ["a temperature above 2", { ...chat, temperature: 3 }],
  ];
  for (const [name, body] of wrongChat) {
    it(`Chat Completions: ${name}`, async () => {
      expect((await post("/v1/chat/completions", body)).status).toBe(400);
    });
  }

  const wrongResponses: [string, object][] = [
    [
      "an unanswered call",
      {
        ...responses,
        input: [user, { type: "function_call", call_id: "a", name: "x", arguments: "{}" }],
      },
    ],
    [
      "a result without a call",
      { ...responses, input: [{ type: "function_call_output", call_id: "a", output: "r" }] },
    ],
    [
      "input text from the assistant",
      { ...responses, input: [turn("assistant", { type: "input_text", text: "t" })] },
    ],
  ];
  for (const [name, body] of wrongResponses) {
    it(`Responses: ${name}`, async () => {
      expect((await post("/v1/responses", body)).status).toBe(400);
    });
  }

  it("a wrong key, an absent key and an unknown route", async () => {
    expect((await post("/v1/messages", anthropic, { "x-api-key": "wrong" })).status).toBe(401);
    expect((await post("/v1/chat/completions", chat, { "x-api-key": "" })).status).toBe(401);
    const bearer = { "x-api-key": "", authorization: "Bearer right" };
    expect((await post("/v1/chat/completions", chat, bearer)).status).toBe(200);
    expect((await post("/v1/nothing", anthropic)).status).toBe(404);
  });
});

describe("startModelServer", () => {
  it("answers all three interfaces, under any path, and keeps the requests", async () => {
    for (const [path, body] of [
      ["/v1/messages", anthropic],
      ["/deep/path/v1/chat/completions", chat],
      ["/v1/responses", responses],
    ] as const) {
      const answer = await post(path, body);
      expect(answer).toMatchObject({ status: 200, text: expect.stringContaining("You said") });
    }
    expect(server.requests.map((request) => request.dialect)).toEqual([
      "anthropic",
      "openai-chat",
      "openai-responses",
    ]);
    expect(server.requests.map((request) => request.messages[0]?.text)).toEqual([
      "hello",
      "hello",
      "hello",
    ]);
    expect(JSON.stringify(server.requests)).not.toContain("right");
  });

  it("keeps only the latest requests", async () => {
    const small = await startModelServer({ keepRequests: 2 });
    for (let n = 0; n < 7; n += 1) {
      const init = {
        method: "POST",
        headers: { "x-api-key": "k" },
        body: JSON.stringify({ ...chat, model: `m${n}` }),
      };
      await (await fetch(`${small.url}/v1/chat/completions`, init)).text();
    }
    expect(small.requests.length).toBeLessThanOrEqual(4);
    expect(small.requests.at(-1)?.model).toBe("m6");
    await small.close();
    await small.close();
  });
});

describe("demoScript", () => {
  const tools = ["current_time", "calculator", "fetch_page"].map((name) => ({
    name,
    description: "",
    inputSchema:
      name === "calculator"
        ? { required: ["expression"] }
        : { properties: name === "fetch_page" ? { url: {} } : {} },
  }));
  const asked = (text: string, ...rest: NormalisedMessage[]): NormalisedRequest => ({
    dialect: "anthropic",
    model: "m",
    system: "",
    messages: [{ role: "user", text, calls: [], results: [] }, ...rest],
    tools,
    body: {},
    headers: {},
  });

  it("shows what a card can hold when asked to, and says what files and pictures arrived", () => {
    expect([demoScript(asked("请展示一下")).text].flat().join("")).toContain("这张卡片");
    expect(demoScript(asked("show me")).thinking).toBeDefined();
    const file =
      'see\n<attachment name="a.pdf" type="application/pdf" bytes="3" state="ready">\nabc\n</attachment>';
    expect(demoScript(asked(file)).text).toContain("a.pdf");
    const picture = { messages: [{ role: "user", content: [{ type: "image" }] }] };
    expect(demoScript({ ...asked("look"), body: picture }).text).toContain("picture");
  });

  it("hands over where that is offered, and greets as the agent that answers", () => {
    const offering = (
      text: string,
      agent: string,
      ...rest: NormalisedMessage[]
    ): NormalisedRequest => ({
      ...asked(text, ...rest),
      tools: [{ name: `transfer_to_${agent}`, description: "", inputSchema: {} }],
    });
    const [call] = demoScript(offering("请专家来看看", "expert")).calls ?? [];
    expect(call).toEqual({ name: "transfer_to_expert", arguments: { reason: "请专家来看看" } });
    expect(demoScript(asked("ask the expert")).calls).toBeUndefined();
    const round: NormalisedMessage[] = [
      {
        role: "assistant",
        text: "",
        calls: [{ id: "t1", name: "transfer_to_expert", arguments: "{}" }],
        results: [],
      },
      {
        role: "tool",
        text: "",
        calls: [],
        results: [{ id: "t1", content: "Transferred to expert.", isError: false }],
      },
    ];
    expect(demoScript(offering("ask the expert", "default", ...round)).text).toContain(
      "I am the expert",
    );
    expect(demoScript(offering("back to the desk", "default")).calls).toMatchObject([
      { name: "transfer_to_default" },
    ]);
    expect(demoScript(offering("请团队写一句话", "default")).text).toContain("先说“回到前台”");
  });

  it("waits for minutes where the person wants that, and reads those that have come", () => {
    const offering = (text: string, name: string): NormalisedRequest => ({
      ...asked(text),
      tools: [{ name, description: "", inputSchema: {} }],
    });
    const wish = "after my meetings, send me the tasks";
    expect(demoScript(offering(wish, "schedule")).calls).toMatchObject([
      { name: "schedule", arguments: { do: "make", on: "minutes-ready" } },
    ]);
    expect(demoScript(offering("每次会议后把任务发给我", "schedule")).calls).toHaveLength(1);
    expect(demoScript(asked(wish)).calls).toBeUndefined();
    const run =
      "[Schedule “Tasks” runs because of minutes-ready]\nRead.\n```\nminute_token: obcn1\n```";
    expect(demoScript(offering(run, "read_minutes")).calls).toEqual([
      { name: "read_minutes", arguments: { of: "obcn1", time_zone: "Asia/Shanghai" } },
    ]);
  });

  it("argues as a writer and a critic in a team, until the critic agrees", () => {
    const offering = {
      ...asked("请团队写一句话"),
      tools: [{ name: "transfer_to_panel", description: "", inputSchema: {} }],
    };
    expect(demoScript(offering).calls).toMatchObject([{ name: "transfer_to_panel" }]);
    const as = (name: string, ...rest: NormalisedMessage[]) =>
      [
        demoScript({
          ...asked("ask the team for a line", ...rest),
          system: `You are ${name}, one of a team`,
        }).text,
      ]
        .flat()
        .join("");
    const said = (role: "user" | "assistant", text: string): NormalisedMessage => ({
      role,
      text,
      calls: [],
      results: [],
    });
    expect(as("writer")).toContain("first draft about “ask the team for a line”");
    const draft = said("user", "writer:\n> A draft.");
    expect(as("critic", draft)).toMatch(/^> .*\n\nThat is worn out/);
    expect(
      as("critic", draft, said("assistant", "No."), said("user", "writer:\n> Short.")),
    ).toMatch(/^APPROVED/);
  });

  it("does what the person's last message asks for, not what one before it asked that was merged with it", async () => {
    const text = (words: string) => ({ type: "text", text: words });
    const tool = { name: "transfer_to_panel", description: "", input_schema: schema };
    const stopped = turn("user", text("ask the team for a line"), text("and what is 6*7?"));
    const summed = turn(
      "user",
      text("[Summary of the earlier conversation]\n\nask the team"),
      text("hello"),
    );
    for (const messages of [[stopped], [summed]]) {
      await post(
        "/v1/messages",
        { ...anthropic, tools: [tool], messages },
        { "anthropic-version": "2023-06-01" },
      );
      const request = server.requests.at(-1);
      if (request === undefined) throw new Error("the server got no request");
      expect(demoScript(request).calls).toBeUndefined();
    }
    const transcript = asked("<conversation>\n<user>ask the team</user>\n</conversation>");
    const orders = {
      ...transcript,
      system: "You compact conversation records. The user message holds",
    };
    expect(demoScript(orders).text).toBe("The person has talked with the demo model.");
  });

  it("asks back where it may: with buttons for tea, with a picker for a day, and says what was answered", () => {
    const asking = (text: string, ...rest: NormalisedMessage[]): NormalisedRequest => ({
      ...asked(text, ...rest),
      tools: [{ name: "ask_person", description: "", inputSchema: {} }],
    });
    const call = (text: string) => demoScript(asking(text)).calls;
    expect(call("ask me: which tea today?")).toMatchObject([
      { arguments: { choices: ["Green", "Black", "Oolong"] } },
    ]);
    const day = { question: "Which day to leave?", format: "date" };
    expect(call("ask me: which day to leave?")).toEqual([{ name: "ask_person", arguments: day }]);
    expect(call("问我：哪天出发？")).toMatchObject([
      { arguments: { question: "哪天出发？", format: "date" } },
    ]);
    const told = (content: string) => {
      const calls = [{ id: "a", name: "ask_person", arguments: "{}" }];
      return demoScript(
        asking(
          "ask me: which day?",
          { role: "assistant", text: "", calls, results: [] },
          { role: "tool", text: "", calls: [], results: [{ id: "a", content, isError: false }] },
        ),
      ).text;
    };
    expect(told('{"answer":"2026-12-24","by":"Ann"}')).toContain("Ann has answered: 2026-12-24");
    expect(told('{"declined":true,"by":"Ann"}')).toContain("Ann did not want to say");
  });

  it("gives two tasks away where it has helpers, and works on one as a helper", () => {
    const offering = (text: string): NormalisedRequest => ({
      ...asked(text),
      tools: [{ name: "send_helper", description: "", inputSchema: {} }],
    });
    const tasksOf = (text: string) =>
      demoScript(offering(text)).calls?.map(({ name, arguments: given }) => [name, given]);
    const given = (...tasks: string[]) => tasks.map((task) => ["send_helper", { task }]);
    expect(tasksOf("send two helpers: apples and pears")).toEqual(
      given("Look at apples", "Look at pears"),
    );
    expect(tasksOf("派两个助手：绿茶和红茶")).toEqual(given("看看绿茶", "看看红茶"));
    expect(tasksOf("Please send two helpers")).toEqual(given("Look at tea", "Look at coffee"));
    expect(
      tasksOf("writer:\n> “ask the team” is worn out.\ncritic:\n> APPROVED.\nsend two helpers"),
    ).toHaveLength(2);
    expect(demoScript(asked("send two helpers: apples and pears")).calls).toBeUndefined();
    const waits = [{ name: "wait", description: "", inputSchema: { required: ["seconds"] } }];
    const helper = (...rest: NormalisedMessage[]) =>
      demoScript({ ...asked("Look at pears", ...rest), system: "You are a helper.", tools: waits });
    expect(helper().calls).toMatchObject([
      { name: "wait", arguments: { seconds: expect.any(Number) } },
    ]);
    const results = [{ id: "a", content: "3 seconds are over", isError: false }];
    expect(helper({ role: "tool", text: "", calls: [], results }).text).toContain(
      "looked at pears",
    );
  });

  it("works a plan off step by step where it may keep a list", () => {
    const offered = (text: string, ...rest: NormalisedMessage[]): NormalisedRequest => ({
      ...asked(text, ...rest),
      tools: ["todo_write", "write_file"].map((name) => ({
        name,
        description: "",
        inputSchema: {},
      })),
    });
    const rounds: NormalisedMessage[] = [];
    const names: string[][] = [];
    for (let reply = demoScript(offered("make a plan")); reply.calls !== undefined;) {
      names.push(reply.calls.map(({ name }) => name));
      const calls = reply.calls.map(({ name }, at) => ({
        id: `c${names.length}-${at}`,
        name,
        arguments: "{}",
      }));
      const results = calls.map(({ id }) => ({ id, content: "ok", isError: false }));
      rounds.push(
        { role: "assistant", text: "", calls, results: [] },
        { role: "tool", text: "", calls: [], results },
      );
      reply = demoScript(offered("make a plan", ...rounds));
      if (reply.calls === undefined) expect(reply.text).toContain("plan.md");
    }
    expect(names).toEqual([
      ["todo_write"],
      ["todo_write", "write_file"],
      ["todo_write"],
      ["todo_write"],
    ]);
    expect(demoScript(asked("make a plan")).calls).toBeUndefined();
  });

  it("answers in the language of the user", () => {
    expect(demoScript(asked("你好")).text).toContain("收到");
    expect(demoScript(asked("good morning")).text).toContain("You said");
  });

  it("calls the tools that the text asks for, several at once", () => {
    expect(demoScript(asked("现在几点？另外 12*7 和 (3+4)/2 是多少")).calls).toEqual([
      { name: "current_time", arguments: {} },
      { name: "calculator", arguments: { expression: "12*7" } },
      { name: "calculator", arguments: { expression: "(3+4)/2" } },
    ]);
    expect(demoScript(asked("read https://example.com/a-1 please")).calls).toEqual([
      { name: "fetch_page", arguments: { url: "https://example.com/a-1" } },
    ]);
    const drawing = [{ name: "bar_chart", description: "", inputSchema: { required: ["values"] } }];
    for (const text of ["chart 3 5 -2.5", "画一个图表：3，5、-2.5。"]) {
      expect(demoScript({ ...asked(text), tools: drawing }).calls).toEqual([
        { name: "bar_chart", arguments: { values: [3, 5, -2.5] } },
      ]);
    }
    expect(demoScript(asked("chart 3 - 5 and 12*7")).calls).toEqual([
      { name: "calculator", arguments: { expression: "12*7" } },
    ]);
    expect(demoScript({ ...asked("12*7"), tools: [] }).calls).toBeUndefined();
  });

  it("remembers what it is asked to, and says what that is", () => {
    const memory = ["remember", "recall"].map((name) => ({
      name,
      description: "",
      inputSchema: { required: name === "remember" ? ["text", "about"] : ["query"] },
    }));
    const callsOf = (text: string) => demoScript({ ...asked(text), tools: memory }).calls;
    const fact = (text: string) => [{ name: "remember", arguments: { text, about: "me" } }];
    expect(callsOf("Remember that I like tea")).toEqual(fact("I like tea"));
    expect(callsOf("请记住：我喜欢喝茶")).toEqual(fact("我喜欢喝茶"));
    const question = "What do you remember about me?";
    expect(callsOf(question)).toEqual([{ name: "recall", arguments: { query: question } }]);
    expect(callsOf("你记住了什么")).toEqual([
      { name: "recall", arguments: { query: "你记住了什么" } },
    ]);
    const answered = (name: string, content: string) =>
      demoScript(
        asked(
          "x",
          { role: "assistant", text: "", calls: [{ id: "a", name, arguments: "{}" }], results: [] },
          { role: "tool", text: "", calls: [], results: [{ id: "a", content, isError: false }] },
        ),
      ).text;
    expect(answered("remember", '{"id":"1","text":"I like tea","about":"me"}')).toContain(
      "I will remember: I like tea",
    );
    expect(answered("recall", '{"query":"x","notes":[{"text":"I like tea"}]}')).toContain(
      "I like tea",
    );
  });

  it("reports the results of its calls, failures too", () => {
    const reply = demoScript(
      asked(
        "what is 12*7?",
        {
          role: "assistant",
          text: "",
          calls: [{ id: "a", name: "calculator", arguments: "{}" }],
          results: [],
        },
        {
          role: "tool",
          text: "",
          calls: [],
          results: [{ id: "a", content: "84", isError: false }],
        },
      ),
    );
    expect(reply.text).toBe("That makes **84**.");
    expect(reply.calls).toBeUndefined();
  });

  it.each([
    ["roll_dice", "掷骰子", "3", "掷出了 **3**。"],
    ["wait", "等 8 秒", "8 seconds are over", "8 秒到了。"],
    ["bar_chart", "chart 1 2", "![1 2](img_v3_1)", "Here is the chart:\n\n![1 2](img_v3_1)"],
    ["read_notes", "看看笔记", "There are no notes yet.", "还没有笔记。"],
    ["recall", "还记得我吗", '{"query":"x","notes":[]}', "我还没有记住什么。"],
    ["recall", "do you remember?", '{"notes":[{"text":"tea"}]}', "I remember: tea"],
    [
      "add_note",
      "记一下：公告",
      "User rejected this action.\nReason: 太早",
      "好，那就不做了：太早",
    ],
    ["ask_person", "ask me: why?", '{"by":"Ann"}', "Ann did not want to say."],
    ["own_tool", "do it", '{"a":1}', '**own_tool** says: {"a":1}'],
  ])("says what %s has answered in a sentence: %s", (name, text, content, sentence) => {
    const isError = content.startsWith("User rejected");
    const reply = demoScript(
      asked(
        text,
        { role: "assistant", text: "", calls: [{ id: "a", name, arguments: "{}" }], results: [] },
        { role: "tool", text: "", calls: [], results: [{ id: "a", content, isError }] },
      ),
    );
    expect(reply.text).toBe(sentence);
  });

  it("announces what it does", () => {
    const offered = ["add_note", "calculator", "current_time"].map((name) => ({
      name,
      description: "",
      inputSchema: { required: ["text"] },
    }));
    const said = (text: string) => demoScript({ ...asked(text), tools: offered });
    expect(said("记一下：给花浇水").text).toBe("好的，我来记到团队笔记里。");
    expect(said("现在几点，12*7 是多少").text).toBe("我来查一下。");
  });

  it("streams slowly when asked to", () => {
    expect(demoScript(asked("slow please")).delayMs).toBeGreaterThan(0);
    expect(demoScript(asked("慢一点")).delayMs).toBeGreaterThan(0);
  });
});
