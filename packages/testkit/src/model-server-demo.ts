import type {
  NormalisedMessage,
  NormalisedRequest,
  ScriptedCall,
  ScriptedReply,
} from "./model-server-script.ts";
import { workReply } from "./model-server-work.ts";

type Tool = NormalisedRequest["tools"][number];

interface Wish {
  tool: string;
  /** The values found in a text, one call each; null = a call without arguments. */
  find(text: string): (string | number | number[] | null)[];
  /** Arguments besides. */
  more?: Record<string, unknown>;
}

const urlPattern = /https?:\/\/[^\s"'<>，。、）)]+/g;
const sumPattern = /[\d(][\d\s.()]*(?:[-+*/^×÷][\d\s.()]*)+[\d)]/g;
const chartPattern = /(?:\bchart\b|图表)[^\d\n-]{0,20}((?:-?\d+(?:\.\d+)?[\s,，、]*){1,40})/gi;
const notePattern = /(?:\bnote\s*[:：]|记一下\s*[:：]?|记下\s*[:：]?)\s*([^\n]{1,200})/gi;
const memoryPattern =
  /(?:\bremember(?: that)?(?![^\n]*\?)|记住(?!了?什么|的)[：:，,]?|记得[：:])\s*([^\n]{2,500})/gi;
const dicePattern = /\broll (?:a )?(?:dice|die|d(\d{1,3}))\b|[掷扔](?:一?[个次])?骰子/gi;
const waitPattern = /(?:\bwait\s+|等(?:待)?\s*)(\d{1,2})\s*(?:s\b|seconds\b|秒)/gi;
const isDate = /^\d{4}-\d{1,2}-\d{1,2}$/;

/** The numbers behind a wish for a chart: "chart 3 5 2". */
function chartsOf(text: string): number[][] {
  return [...text.matchAll(chartPattern)].map(([, list = ""]) =>
    (list.match(/-?\d+(?:\.\d+)?/g) ?? []).map(Number),
  );
}

function sumsOf(text: string): string[] {
  const sums =
    text.replaceAll(urlPattern, " ").replaceAll(chartPattern, " ").match(sumPattern) ?? [];
  return sums
    .map((sum) => sum.trim().replaceAll("×", "*").replaceAll("÷", "/"))
    .filter((sum) => /\d/.test(sum) && !isDate.test(sum));
}

const wishes: readonly Wish[] = [
  { tool: "current_time", find: (text) => (/\btime\b|几点|时间|现在/i.test(text) ? [null] : []) },
  { tool: "calculator", find: sumsOf },
  { tool: "fetch_page", find: (text) => text.match(urlPattern) ?? [] },
  { tool: "bar_chart", find: chartsOf },
  {
    tool: "remember",
    find: (text) => [...text.matchAll(memoryPattern)].map(([, fact = ""]) => fact.trim()),
    more: { about: "me" },
  },
  {
    tool: "recall",
    find: (text) =>
      /\bdo you remember\b|记住了什么|还记得/i.test(text) ? [text.slice(0, 500)] : [],
  },
  {
    tool: "add_note",
    find: (text) => [...text.matchAll(notePattern)].map(([, note = ""]) => note.trim()),
  },
  {
    tool: "wait",
    find: (text) => [...text.matchAll(waitPattern)].map(([, seconds = "1"]) => Number(seconds)),
  },
  {
    tool: "roll_dice",
    find: (text) => [...text.matchAll(dicePattern)].map(([, sides = "6"]) => Number(sides)),
  },
  {
    tool: "read_notes",
    find: (text) => (/\bnotes\b|有哪些笔记|看看笔记/i.test(text) ? [null] : []),
  },
];

/** What is said before a call; several calls, and other tools, are announced by the first of them. */
const announcements: Readonly<Record<string, readonly [zh: string, en: string]>> = {
  "": ["我来查一下。", "Let me look that up."],
  calculator: ["我来算一下。", "Let me work that out."],
  fetch_page: ["我来读一下这个网页。", "Let me read that page."],
  bar_chart: ["我来画图。", "Let me draw that."],
  remember: ["好的。", "All right."],
  recall: ["让我想想。", "Let me think."],
  add_note: ["好的，我来记到团队笔记里。", "I will add that to the team's notes."],
  wait: ["好，等一会儿。", "I wait."],
  roll_dice: ["我来掷。", "I roll."],
  read_notes: ["我看看笔记。", "Let me read the notes."],
  send_helper: ["我派两个助手去看看。", "I send two helpers."],
};

function announcementOf(calls: readonly ScriptedCall[], zh: boolean): string {
  const names = [...new Set(calls.map(({ name }) => name))];
  const own = names.length === 1 ? announcements[names[0] ?? ""] : undefined;
  return (own ?? announcements[""] ?? [""])[zh ? 0 : 1] ?? "";
}

/** Words that ask for another agent. */
const handOvers = [
  { tool: "transfer_to_expert", pattern: /\bask the expert\b|问(?:一?下)?专家|请专家/i },
  { tool: "transfer_to_panel", pattern: /\bask the team\b|问(?:一?下)?团队|请团队/i },
  { tool: "transfer_to_default", pattern: /\bback to the (?:front )?desk\b|回到?前台/i },
] as const;

/** A writer and a critic, who argue over what the person has asked for. */
const teamMember = /^You are (writer|critic), one of a team/m;

const teamWords = {
  en: {
    writer: [
      (topic: string) =>
        `A first draft about “${topic}”: it was a dark and stormy night, and everybody was waiting.`,
      (topic: string) => `Shorter: “${topic}”, and the night was dark.`,
    ],
    critic: [
      () =>
        "> it was a dark and stormy night\n\nThat is worn out, and too long. Say it in one line.",
      () => "APPROVED. (`/agent default` leads back to the front desk.)",
    ],
  },
  zh: {
    writer: [
      (topic: string) => `初稿，关于“${topic}”：那是一个风雨交加的夜晚，所有人都在等待。`,
      (topic: string) => `改短：“${topic}”，夜很黑。`,
    ],
    critic: [
      () => "> 那是一个风雨交加的夜晚\n\n这句话用得太多，也太长。请用一行说完。",
      () => "APPROVED：通过。（发送 `/agent default` 可以回到前台。）",
    ],
  },
} as const;

/** What a member of the team says: first a draft and an objection, then a better one and a yes. */
function teamReply({ system, messages }: NormalisedRequest): ScriptedReply | undefined {
  const [, name] = teamMember.exec(system) ?? [];
  if (name !== "writer" && name !== "critic") return undefined;
  const asked = messages.findLast(
    ({ role, text }) => role === "user" && text !== "" && !/^(?:writer|critic):\n> /.test(text),
  );
  const topic = (asked?.text ?? "").slice(0, 60).split("\n", 1)[0] ?? "";
  const words = teamWords[/[\u4e00-\u9fff]/.test(topic) ? "zh" : "en"][name];
  const said = messages.filter(({ role, text }) => role === "assistant" && text !== "").length;
  const text = words[said % words.length]?.(topic) ?? "";
  return { text: pieces(text, 3), firstDelayMs: 300, delayMs: 40 };
}

/** The hand-over that a text asks for, where it is offered. */
function handOverFor(text: string, tools: readonly Tool[]): ScriptedCall | undefined {
  const wanted = handOvers.find(
    ({ tool, pattern }) => pattern.test(text) && tools.some(({ name }) => name === tool),
  );
  return wanted === undefined
    ? undefined
    : { name: wanted.tool, arguments: { reason: text.slice(0, 200) } };
}

const helpersPattern =
  /(?:\bsend two helpers\b|派(?:出)?(?:两|二|2)\s*个助手)(?:[：:，,\s]+([^\n]{1,200}))?/i;

/** "send two helpers: tea and coffee" or "派两个助手：绿茶和红茶", where there are some: a task for each topic. */
function tasksFor(text: string, tools: readonly Tool[], zh: boolean): ScriptedCall[] {
  const asked = helpersPattern.exec(text);
  if (asked === null || !tools.some(({ name }) => name === "send_helper")) return [];
  const topics = (asked[1] ?? "")
    .split(/\s*(?:\band\b|[和与、,，])\s*/)
    .filter((topic) => topic !== "");
  const [first, second] = topics.length < 2 ? (zh ? ["绿茶", "红茶"] : ["tea", "coffee"]) : topics;
  return [first, second].map((topic) => ({
    name: "send_helper",
    arguments: { task: zh ? `看看${topic}` : `Look at ${topic}` },
  }));
}

/** What a helper does: it takes some seconds, which depend on its task, so that people see several of them at work. */
function helperReply({ system, messages, tools }: NormalisedRequest): ScriptedReply | undefined {
  if (!/^You are a helper\b/m.test(system)) return undefined;
  const task = messages.find(({ role, text }) => role === "user" && text !== "")?.text ?? "";
  const zh = /[\u4e00-\u9fff]/.test(task);
  const topic = task.replace(/^(?:Look at |看看)/, "").slice(0, 60);
  if (
    messages.some(({ results }) => results.length > 0) ||
    !tools.some(({ name }) => name === "wait")
  ) {
    return {
      text: zh
        ? `我看过${topic}了：很不错。`
        : `I have looked at ${topic}: there is much to say for it.`,
    };
  }
  const seconds = 3 + ([...task].reduce((sum, each) => sum + (each.codePointAt(0) ?? 0), 0) % 4);
  return { calls: [{ name: "wait", arguments: { seconds } }] };
}

/** "ask me: which tea today?" or "问我：今天喝哪种茶？", where people may be asked. */
function questionFor(text: string, tools: readonly Tool[], zh: boolean): ScriptedCall | undefined {
  const [, words = ""] = /(?:\bask me\b|问我)[：:，,\s]*([^\n]{2,500})/i.exec(text) ?? [];
  if (words === "" || !tools.some(({ name }) => name === "ask_person")) return undefined;
  const asked =
    words.charAt(0).toUpperCase() + words.slice(1).replace(/[?？\s]*$/, zh ? "？" : "?");
  const choices = zh ? ["绿茶", "红茶", "乌龙茶"] : ["Green", "Black", "Oolong"];
  const isDay = /\b(?:day|date|when)\b|哪(?:一)?天|日期|几号/i.test(words);
  const more = /\btea\b|茶/i.test(words) ? { choices } : isDay ? { format: "date" } : {};
  return { name: "ask_person", arguments: { question: asked, ...more } };
}

/** What a person has answered, in words. */
function answerLine(name: string, content: string, zh: boolean): string | undefined {
  if (name !== "ask_person" || !content.startsWith("{")) return undefined;
  const { answer, by = "" } = JSON.parse(content) as { answer?: string; by?: string };
  if (answer === undefined) return zh ? `${by} 没有回答。` : `${by} did not want to say.`;
  return zh ? `${by} 的回答是：${answer}` : `${by} has answered: ${answer}`;
}

/** What an agent says that has just taken over; undefined where none has. */
function greetingIn(round: readonly NormalisedMessage[], zh: boolean): string | undefined {
  const last = round.flatMap(({ calls }) => calls).at(-1)?.name;
  if (last === "transfer_to_expert") {
    return zh
      ? "我是专家，前台把你的问题转给了我。接下来都由我回答；说“回到前台”就回去。"
      : 'I am the expert: the front desk has handed this over to me. I answer from now on; say "back to the desk" to return.';
  }
  if (last !== "transfer_to_default") return undefined;
  return zh ? "这里是前台，又由我来回答了。" : "This is the front desk again.";
}

const planPattern = /\bmake a plan\b|做个计划|制定计划/i;
const planSteps = {
  zh: ["看看需要什么", "写下计划", "检查一遍"],
  en: ["See what is needed", "Write the plan down", "Check it"],
} as const;

/** A plan is worked off step by step, so that people see the list being ticked off, and is written into a file. */
function planReply(
  text: string,
  round: readonly NormalisedMessage[],
  tools: readonly Tool[],
): ScriptedReply | undefined {
  const offers = (wanted: string): boolean => tools.some(({ name }) => name === wanted);
  if (!planPattern.test(text) || !offers("todo_write")) return undefined;
  const zh = /[\u4e00-\u9fff]/.test(text);
  const steps = planSteps[zh ? "zh" : "en"];
  const finished = round
    .flatMap(({ calls }) => calls)
    .filter(({ name }) => name === "todo_write").length;
  if (finished > steps.length) {
    const kept = offers("write_file") ? (zh ? "，写在 plan.md 里" : ", it is in plan.md") : "";
    return { text: zh ? `计划做好了${kept}。` : `The plan is done${kept}.` };
  }
  const todos = steps.map((step, at) => ({
    text: step,
    state: at < finished ? "done" : at === finished ? "in_progress" : "pending",
  }));
  const calls: ScriptedCall[] = [{ name: "todo_write", arguments: { todos } }];
  if (finished === 1 && offers("write_file")) {
    calls.push({
      name: "write_file",
      arguments: { path: "plan.md", content: steps.map((step) => `- ${step}`).join("\n") },
    });
  }
  return { calls, firstDelayMs: 700 };
}

const meetingsPattern = /\bafter (?:each of )?my meetings\b|会议(?:结束)?(?:之)?后/i;

/** Minutes have come that a schedule has waited for: they are read. */
function minutesReply({ messages, tools }: NormalisedRequest): ScriptedReply | undefined {
  const message = messages.at(-1)?.text ?? "";
  const [, of] = /because of minutes-ready[^]*\nminute_token: (\w+)/.exec(message) ?? [];
  const isOffered = tools.some(({ name }) => name === "read_minutes");
  if (of === undefined || !isOffered) return undefined;
  const zh = /[\u4e00-\u9fff]/.test(message);
  return {
    text: zh ? "会议结束了，我来看看妙记。" : "Your meeting has ended: let me read its minutes.",
    calls: [{ name: "read_minutes", arguments: { of, time_zone: "Asia/Shanghai" } }],
  };
}

/** "after my meetings, send me the tasks" waits for the minutes of each. */
function meetingsReply(
  text: string,
  round: readonly NormalisedMessage[],
  tools: readonly Tool[],
): ScriptedReply | undefined {
  const isOffered = tools.some(({ name }) => name === "schedule");
  if (!meetingsPattern.test(text) || !isOffered || round.length > 0) return undefined;
  const zh = /[\u4e00-\u9fff]/.test(text);
  const words = zh
    ? { title: "会议任务", task: "读会议的妙记，把任务发给我。" }
    : {
        title: "Tasks of meetings",
        task: "Read the minutes of the meeting, and send me its tasks.",
      };
  return {
    text: zh ? "好的。" : "All right.",
    calls: [{ name: "schedule", arguments: { do: "make", ...words, on: "minutes-ready" } }],
  };
}

/** The next step of what takes several. */
function stepOf(
  text: string,
  round: readonly NormalisedMessage[],
  tools: readonly Tool[],
): ScriptedReply | undefined {
  return (
    planReply(text, round, tools) ??
    meetingsReply(text, round, tools) ??
    workReply(text, round, tools)
  );
}

/** The name a tool gives to its main argument: its first required property, else its first one. */
function argumentName(tool: Tool): string | undefined {
  const { required, properties } = tool.inputSchema;
  if (Array.isArray(required) && typeof required[0] === "string") return required[0];
  return typeof properties === "object" && properties !== null
    ? Object.keys(properties)[0]
    : undefined;
}

function callsFor(text: string, tools: readonly Tool[]): ScriptedCall[] {
  const calls: ScriptedCall[] = [];
  for (const wish of wishes) {
    const tool = tools.find((offered) => offered.name === wish.tool);
    if (tool === undefined) continue;
    const name = argumentName(tool);
    for (const value of wish.find(text).slice(0, 4)) {
      const own = value === null || name === undefined ? {} : { [name]: value };
      calls.push({ name: tool.name, arguments: { ...own, ...wish.more } });
    }
  }
  return calls;
}

function lastUserAt(messages: readonly NormalisedMessage[]): number {
  return messages.findLastIndex((message) => message.role === "user" && message.text !== "");
}

/** What the tools for memories have answered, in words. */
function memoryLine(name: string, content: string, zh: boolean): string | undefined {
  if (!["remember", "recall"].includes(name) || !content.startsWith("{")) return undefined;
  const { text = "", notes = [] } = JSON.parse(content) as {
    text?: string;
    notes?: { text: string }[];
  };
  if (name === "remember") return zh ? `记住了：${text}` : `I will remember: ${text}`;
  if (notes.length === 0) return zh ? "我还没有记住什么。" : "I remember nothing yet.";
  const all = notes.map((note) => note.text);
  return zh ? `我记得：${all.join("；")}` : `I remember: ${all.join("; ")}`;
}

/** What the tools of the demo have answered, as one would say it. */
const sentences: Readonly<Record<string, (content: string, zh: boolean) => string>> = {
  calculator: (content, zh) => (zh ? `结果是 **${content}**。` : `That makes **${content}**.`),
  current_time(content, zh) {
    const fields = fieldsOf(content);
    const [date = "", time = ""] = String(fields["time"]).split(/[T+]/);
    const where = String(fields["timeZone"]);
    return zh ? `现在是 ${date} ${time}（${where}）。` : `It is ${time} on ${date} (${where}).`;
  },
  schedule: (_content, zh) =>
    zh ? "好，妙记一生成我就告诉你。" : "I tell you as soon as minutes are ready.",
  add_note: (_content, zh) => (zh ? "已经记下了。" : "I have written it down."),
  read_notes(content, zh) {
    if (!content.startsWith("- ")) return zh ? "还没有笔记。" : content;
    return zh ? `团队笔记：\n\n${content}` : `The team's notes:\n\n${content}`;
  },
  bar_chart: (content, zh) =>
    zh ? `图画好了：\n\n${content}` : `Here is the chart:\n\n${content}`,
  wait: (content, zh) => (zh ? `${content.split(" ")[0]} 秒到了。` : `${content}.`),
  roll_dice: (content, zh) => (zh ? `掷出了 **${content}**。` : `The die shows **${content}**.`),
  fetch_page(content, zh) {
    const { title, text, url } = fieldsOf(content);
    const start = String(text).slice(0, 300);
    return zh
      ? `“${String(title || url)}”写道：${start}`
      : `"${String(title || url)}" says: ${start}`;
  },
};

function fieldsOf(content: string): Record<string, unknown> {
  return content.startsWith("{") ? (JSON.parse(content) as Record<string, unknown>) : {};
}

/** What is said of a call that a person has rejected; undefined where it has failed otherwise. */
function rejectionLine(content: string, zh: boolean): string | undefined {
  const [, reason] =
    /^(?:permission_denied: )?User rejected this action\.(?:\nReason: ([^\n]+))?/.exec(content) ??
    [];
  if (!content.includes("User rejected this action.")) return undefined;
  if (reason === undefined) return zh ? "好，那就不做了。" : "All right, I leave it.";
  return zh ? `好，那就不做了：${reason}` : `All right, I leave it: ${reason}`;
}

/** One sentence for each call, or what its tool has said. */
function resultLines(round: readonly NormalisedMessage[], zh: boolean): string[] {
  const names = new Map(
    round.flatMap((message) => message.calls.map((call) => [call.id, call.name] as const)),
  );
  return round.flatMap((message) =>
    message.results.map((result) => {
      const name = names.get(result.id) ?? "tool";
      const { content, isError } = result;
      const sentence = isError
        ? rejectionLine(content, zh)
        : (memoryLine(name, content, zh) ??
          answerLine(name, content, zh) ??
          sentences[name]?.(content, zh));
      if (sentence !== undefined) return sentence;
      const text = content.slice(0, 600).replace(/^tool_execution_error: /, "");
      if (!isError) return zh ? `**${name}** 的结果：${text}` : `**${name}** says: ${text}`;
      return zh ? `**${name}** 没有成功：${text}` : `**${name}** failed: ${text}`;
    }),
  );
}

/** One result is a sentence, several are a list. */
function resultText(lines: readonly string[], zh: boolean): string {
  const [only = ""] = lines;
  if (lines.length === 1) return only;
  return `${zh ? "结果如下：" : "Here is what came out:"}\n\n${lines.map((line) => `- ${line}`).join("\n")}`;
}

function echo(text: string, zh: boolean): string {
  return zh
    ? `收到：“${text}”。\n\n我是不需要密钥的演示模型。可以问我现在几点、算一道题（例如 12*7）、画图表 3 5 2，“记一下：给花浇水”（会先征求同意），“记住我喜欢喝茶”，“请专家”，“请团队写一句话”，“派两个助手：绿茶和红茶”，“做个计划”，“每次会议后把任务发给我”（在“会议”页开一个会），“安排项目”（以你的身份读写飞书里的内容，会先征求同意），“订一个行程”，“等 8 秒”，发一个网址让我读，或者说“展示”看看卡片能显示什么。`
    : `You said: "${text}".\n\nI am the demo model that needs no key. Ask me for the time, a sum such as 12*7, a "chart 3 5 2", say "note: water the plants" (you will be asked first) or "remember that I like tea", "ask the expert", "ask the team for a line", "send two helpers: tea and coffee", "make a plan", "after my meetings, send me the tasks" (hold one on the page of meetings), "find the plan of the project" (works in Feishu as you, and asks you first), "book a trip", "wait 8 seconds", send a URL for me to read, or say "show" to see what a card can hold.`;
}

function tale(zh: boolean): string {
  const line = zh
    ? "这一段话慢慢地写出来，好让你看见它正在生成。"
    : "This sentence is written slowly so that you can watch. ";
  return line.repeat(8);
}

const showcase = {
  zh: [
    "## 这张卡片能显示什么",
    "正文是**逐字**更新的：标题、列表、`代码`、[链接](https://open.feishu.cn)和表格都可以。",
    "1. 思考过程折叠在上面\n2. 工具调用带有状态和耗时\n3. 停止按钮随时可用",
    "| 进程 | 作用 |\n| --- | --- |\n| ingress | 接收消息 |\n| agent-worker | 调用模型，书写卡片 |\n| tool-runner | 执行工具 |",
    "| 月份 | 请求 | 成功率 | 轮次 | 工具 | 人 | 费用 | 首字 |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n| 2026-09 | 1,204,118 | 98.72% | 12,400 | 3,118 | 41 | ¥8,812.40 | 0.4 s |\n| 2026-10 | 1,318,400 | 99.01% | 18,250 | 4,002 | 37 | ¥9,120.15 | 0.3 s |",
    '```chart\n{"type": "bar", "title": "每月轮次", "data": [{"month": "九月", "turns": 12400}, {"month": "十月", "turns": 18250}, {"month": "十一月", "turns": 16900}], "x": "month", "y": "turns"}\n```',
    '```ts\nexport default defineTool({\n  name: "roll_dice",\n  effect: "pure",\n});\n```',
    "> 即使书写这张卡片的进程被杀掉，另一个进程也会把它写完。",
  ],
  en: [
    "## What this card can show",
    "The answer is **typed** as it is generated: headings, lists, `code`, [links](https://open.larksuite.com) and tables.",
    "1. Thinking is folded away above\n2. Tools show their state and time\n3. The stop button works at any moment",
    "| process | what it does |\n| --- | --- |\n| ingress | takes messages |\n| agent-worker | asks the model, writes the card |\n| tool-runner | runs tools |",
    "| month | requests | success | turns | calls | people | cost | first text |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n| 2026-09 | 1,204,118 | 98.72% | 12,400 | 3,118 | 41 | ¥8,812.40 | 0.4 s |\n| 2026-10 | 1,318,400 | 99.01% | 18,250 | 4,002 | 37 | ¥9,120.15 | 0.3 s |",
    '```chart\n{"type": "bar", "title": "Turns of a month", "data": [{"month": "September", "turns": 12400}, {"month": "October", "turns": 18250}, {"month": "November", "turns": 16900}], "x": "month", "y": "turns"}\n```',
    '```ts\nexport default defineTool({\n  name: "roll_dice",\n  effect: "pure",\n});\n```',
    "> Kill the process that writes this card: another one continues it.",
  ],
} as const;

/** Pieces of a few characters each, as models send them. */
function pieces(text: string, size: number): string[] {
  const characters = [...text];
  const count = Math.ceil(characters.length / size);
  return Array.from({ length: count }, (_, index) =>
    characters.slice(index * size, (index + 1) * size).join(""),
  );
}

function showcaseReply(zh: boolean): ScriptedReply {
  const text = showcase[zh ? "zh" : "en"].join("\n\n");
  const thinking = zh
    ? "用户想看看卡片的样子。我用标题、列表、表格和代码各写一点。"
    : "The user wants to see the card. I write a little of everything: a heading, a list, a table, code.";
  return { thinking: { text: thinking }, text: pieces(text, 4), firstDelayMs: 300, delayMs: 40 };
}

/** Names of files whose text came with the message. */
function filesIn(text: string): string[] {
  return [...text.matchAll(/<attachment name="([^"]+)"[^>]* state="ready">/g)].map(
    ([, name = ""]) => name,
  );
}

function holdsImage({ body }: NormalisedRequest): boolean {
  const { messages } = body;
  const last: unknown = Array.isArray(messages) ? messages.at(-1) : undefined;
  return /"type":"(?:image|image_url|input_image)"/.test(JSON.stringify(last ?? ""));
}

function received(request: NormalisedRequest, text: string, zh: boolean): string | undefined {
  const files = filesIn(text);
  if (files.length > 0) {
    const names = files.join(zh ? "、" : ", ");
    return zh
      ? `我读到了 ${names} 的文字，共 ${text.length} 个字符。`
      : `I got the text of ${names}: ${text.length} characters.`;
  }
  if (!holdsImage(request)) return undefined;
  return zh
    ? "我收到了一张图片；真正的模型可以看懂它。"
    : "I got a picture; a real model can see what it shows.";
}

function isFile(block = ""): boolean {
  return /^(?:<attachment |\[file )/.test(block);
}

/** The person's last message: a summary, or a message whose answer was stopped, may stand before it in the same one. */
function lastWords({ text = "", blocks = [] }: Partial<NormalisedMessage> = {}): string {
  let at = blocks.findLastIndex((block) => !isFile(block));
  while (at > 0 && isFile(blocks[at - 1])) at -= 1;
  return at <= 0 ? text : blocks.slice(at).join("\n");
}

const summaryOrders = /^(?:You compact conversation records|你负责压缩对话记录)/;

/** A summary that asks for nothing: what the person has asked for was done before it. */
function summaryReply({ system, messages }: NormalisedRequest): ScriptedReply | undefined {
  if (!summaryOrders.test(system)) return undefined;
  const zh = /[\u4e00-\u9fff]/.test(messages[0]?.text ?? "");
  return { text: zh ? "用户和演示模型聊了一会儿。" : "The person has talked with the demo model." };
}

/** What is said besides in answer to a person's own words. */
function replyInRole(request: NormalisedRequest): ScriptedReply | undefined {
  return (
    summaryReply(request) ?? teamReply(request) ?? helperReply(request) ?? minutesReply(request)
  );
}

/** What a team has said stands before the person's next message, quoted below the names of its members. */
function withoutContributions(text: string): string {
  return text.replaceAll(/^[\w-]+:\n(?:>.*(?:\n|$))+/gm, "");
}

/**
 * The scripted model of demos: answers in the language of the user (Chinese or English), calls
 * `current_time`, `calculator`, `fetch_page`, `bar_chart`, `add_note`, `read_notes`, `wait`, `roll_dice`, `remember` and `recall` when they are offered and asked for, several at
 * once, and then reports their results. "ask the expert" or "请专家" makes it hand over, where it can, and "ask me: ..." or "问我：..." ask; "ask the team" or "请团队" is for a writer and a critic; "send two helpers: ..." or "派两个助手：..." gives two tasks away; "book a trip" or "订一个行程" calls a tool of an MCP server that asks. "make a plan" or "做个计划" shows a
 * to-do list and a file; "after my meetings" or "会议后" waits for minutes; "find the plan of the project" or "安排项目" works with the tools of Feishu. "slow" or "慢" makes it stream slowly, "show" or "展示" shows
 * what a card can hold.
 */
export function demoScript(request: NormalisedRequest): ScriptedReply {
  const inRole = replyInRole(request);
  if (inRole !== undefined) return inRole;
  const at = lastUserAt(request.messages);
  const text = withoutContributions(lastWords(request.messages[at]));
  const zh = /[\u4e00-\u9fff]/.test(text);
  const round = request.messages.slice(at + 1);
  const lines = resultLines(round, zh);
  const next = stepOf(text, round, request.tools);
  if (next !== undefined) return next;
  const pace = /\bslow\b|慢/i.test(text) ? { firstDelayMs: 300, delayMs: 150 } : {};
  const greeting = greetingIn(round, zh);
  if (greeting !== undefined) return { text: greeting, ...pace };
  if (lines.length > 0) return { text: resultText(lines, zh), ...pace };
  const got = received(request, text, zh);
  if (got !== undefined) return { text: got, ...pace };
  const handOver = handOverFor(text, request.tools);
  if (handOver !== undefined) {
    return { text: zh ? "我请同事来。" : "I get a colleague.", calls: [handOver], ...pace };
  }
  const question = questionFor(text, request.tools, zh);
  if (question !== undefined) {
    return { text: zh ? "我先问一下。" : "Let me ask first.", calls: [question], ...pace };
  }
  const calls = [...tasksFor(text, request.tools, zh), ...callsFor(text, request.tools)];
  if (calls.length > 0) return { text: announcementOf(calls, zh), calls, ...pace };
  if (/\bshow\b|展示/i.test(text)) return showcaseReply(zh);
  const isElsewhere =
    handOvers.some(({ pattern }) => pattern.test(text)) || helpersPattern.test(text);
  if (isElsewhere && request.tools.some(({ name }) => name === "transfer_to_default")) {
    return {
      text: zh ? "这要请前台来办：先说“回到前台”。" : 'Say "back to the desk" first.',
      ...pace,
    };
  }
  return "delayMs" in pace ? { text: tale(zh), ...pace } : { text: echo(text, zh) };
}
