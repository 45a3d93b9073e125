import type { ReplyLanguage, ReplyView } from "@larkline/protocol";

/** Every text around an answer and on the other cards. */
export interface CardTexts {
  thinking: string;
  thought: string;
  tools(count: number): string;
  earlier(count: number): string;
  seconds(seconds: string): string;
  /** A call that a person has to decide about. */
  waiting: string;
  /** A call whose runner is not there. */
  away: string;
  /** How long a call waited for its runner, in seconds. */
  queued(seconds: string): string;
  /** Input and output tokens. */
  tokens(input: string, output: string): string;
  stop: string;
  noAnswer: string;
  /** Where the rest of an answer is that takes too many cards. */
  rest: { later: string; now(file: string): string };
  /** Name of that file. */
  restFile: string;
  states: Record<ReplyView["state"], string>;
  late: { title: string; body(age: string): string; run: string; ignore: string; ran: string; ignored: string };
  age(ms: number): string;
  welcome: { title: string; body: string; commands: string };
  /** In place of a card that the answer does not need any more. */
  replaced: { title: string; text: string };
  /** In place of a card whose answer is sent as text. */
  textFollows: { title: string; text: string };
}

function ageIn(units: { minutes: string; hours: string; days: string }): (ms: number) => string {
  return (ms) => {
    const minutes = Math.max(1, Math.round(ms / 60_000));
    if (minutes < 60) return `${minutes}${units.minutes}`;
    if (minutes < 48 * 60) return `${Math.round(minutes / 60)}${units.hours}`;
    return `${Math.round(minutes / 1440)}${units.days}`;
  };
}

const zh: CardTexts = {
  thinking: "思考中…",
  thought: "思考过程",
  tools: (count) => `工具 ${count}`,
  earlier: (count) => `…更早的 ${count} 次调用`,
  seconds: (seconds) => `${seconds} 秒`,
  waiting: "等待批准",
  away: "工具暂时离线，等它回来",
  queued: (seconds) => `排队 ${seconds} 秒`,
  tokens: (input, output) => `输入 ${input} · 输出 ${output} token`,
  stop: "停止",
  noAnswer: "（没有回答）",
  rest: { later: "📄 回答很长，其余部分将以文件发送。", now: (file) => `📄 回答很长，其余部分见下面的文件 ${file}。` },
  restFile: "回答（续）.md",
  states: {
    running: "回答中…",
    answered: "已回答",
    stopped: "⏹️ 已停止",
    failed: "⚠️ 回答失败",
    interrupted: "⚠️ 回答中断，没有完成",
  },
  late: {
    title: "这条消息来晚了",
    body: (age) => `下面的消息是 ${age}前发出的，现在才收到。要处理它，还是忽略？`,
    run: "处理",
    ignore: "忽略",
    ran: "已选择处理。",
    ignored: "已忽略。",
  },
  age: ageIn({ minutes: " 分钟", hours: " 小时", days: " 天" }),
  welcome: { title: "你好", body: "直接发消息给我就可以开始；在群里请 @我。", commands: "可用的命令：" },
  replaced: { title: "已重新生成", text: "这部分回答已重新生成，请看前面的卡片。" },
  textFollows: { title: "改为文本回复", text: "这张卡片无法继续显示，完整回答请看下面的消息。" },
};

const en: CardTexts = {
  thinking: "Thinking…",
  thought: "Thoughts",
  tools: (count) => `Tools ${count}`,
  earlier: (count) => `… ${count} earlier ${count === 1 ? "call" : "calls"}`,
  seconds: (seconds) => `${seconds} s`,
  waiting: "waiting for a person",
  away: "its runner is away; waiting for it",
  queued: (seconds) => `queued ${seconds} s`,
  tokens: (input, output) => `${input} in · ${output} out tokens`,
  stop: "Stop",
  noAnswer: "(no answer)",
  rest: {
    later: "📄 The answer is long: the rest will come as a file.",
    now: (file) => `📄 The answer is long: the rest is in the file ${file} below.`,
  },
  restFile: "answer-continued.md",
  states: {
    running: "Answering…",
    answered: "Answered",
    stopped: "⏹️ Stopped",
    failed: "⚠️ Failed",
    interrupted: "⚠️ Interrupted before it was finished",
  },
  late: {
    title: "This message came late",
    body: (age) => `The message below was sent ${age} ago and arrived only now. Run it or ignore it?`,
    run: "Run",
    ignore: "Ignore",
    ran: "It is being run.",
    ignored: "It is ignored.",
  },
  age: ageIn({ minutes: " min", hours: " h", days: " days" }),
  welcome: { title: "Hello", body: "Write to me to begin; in groups, mention me.", commands: "Commands:" },
  replaced: { title: "Written anew", text: "This part of the answer was written anew: see the card above." },
  textFollows: {
    title: "Answered as text",
    text: "This card cannot be shown any further: the whole answer is in the message below.",
  },
};

export const cardTexts: Record<ReplyLanguage, CardTexts> = { zh, en };
