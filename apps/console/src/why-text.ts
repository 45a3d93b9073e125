import type { ReplyLanguage } from "@larkline/protocol";
import type { Diagnosis, Refusal } from "./diagnosis.ts";

// What the page "Why no answer?" says: reasons in one sentence, and the names of what happens.

type Text = Readonly<Record<ReplyLanguage, string>>;

/** What a duration is called, such as `350 ms`, `3.2 s` or `2 h 5 min`. */
export function durationText(language: ReplyLanguage, ms: number): string {
  const zh = language === "zh";
  const whole = Math.max(0, Math.round(ms));
  if (whole < 1_000) return zh ? `${whole} 毫秒` : `${whole} ms`;
  if (whole < 60_000) {
    return zh ? `${(whole / 1_000).toFixed(1)} 秒` : `${(whole / 1_000).toFixed(1)} s`;
  }
  const minutes = Math.round(whole / 60_000);
  if (minutes < 60) return zh ? `${minutes} 分钟` : `${minutes} min`;
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  if (rest === 0) return zh ? `${hours} 小时` : `${hours} h`;
  return zh ? `${hours} 小时 ${rest} 分钟` : `${hours} h ${rest} min`;
}

/** Why a message is not taken, by what ingress calls it. */
const refusals: Readonly<Record<string, Text>> = {
  not_mentioned: {
    zh: "未处理：群消息没有 @ 机器人。",
    en: "Ignored: the bot was not mentioned in this group message.",
  },
  groups_off: {
    zh: "未处理：这个群里的消息不处理。",
    en: "Ignored: the bot does not answer in groups.",
  },
  bot_message: {
    zh: "未处理：消息来自另一个机器人；feishu.botTurnsPerHour 可以允许群里的其他机器人 @ 它。",
    en: "Ignored: another bot wrote it. With feishu.botTurnsPerHour, other bots of a group may mention this one.",
  },
  bot_limit: {
    zh: "未处理：另一个机器人在这个群里 @ 它的次数超过了 feishu.botTurnsPerHour（防止机器人互相循环）。",
    en: "Ignored: other bots have mentioned it more often in this group than feishu.botTurnsPerHour allows, which ends loops.",
  },
  own_message: { zh: "未处理：消息是机器人自己发的。", en: "Ignored: the bot itself wrote it." },
  foreign_tenant: {
    zh: "未处理：发送者属于不服务的企业，已告知对方。",
    en: "Refused: its sender belongs to an organisation that is not served. The reply says so.",
  },
  late: {
    zh: "消息送达得太晚，没有直接处理；已询问发送者是否仍然需要。",
    en: "It arrived too late to be answered unasked: the reply says so, or asks whether it is still wanted.",
  },
  too_long: {
    zh: "消息太长，没有处理，已告知发送者。",
    en: "Refused: it is too long. The reply says so.",
  },
  empty: {
    zh: "消息没有内容，已回复一句提示。",
    en: "It is empty: its sender was asked what they want.",
  },
  full: {
    zh: "这个会话排队的消息太多，没有处理，已告知发送者。",
    en: "Refused: too many messages of this conversation were waiting. The reply says so.",
  },
  busy: {
    zh: "会话正忙，按设置拒绝了新消息，已告知发送者。",
    en: "Refused: the conversation was busy, and the agent takes no second message then. The reply says so.",
  },
  recalled: {
    zh: "消息在处理之前被撤回。",
    en: "Its sender took it back before it could be stored.",
  },
  unreadable: { zh: "事件内容无法读取。", en: "The event could not be read." },
  unsure: {
    zh: "机器人当时还不知道自己的 open_id，等待平台重新投递。",
    en: "The bot did not know its own open_id yet: the platform delivers the message again.",
  },
};

type Say<Is extends Diagnosis["is"]> = (
  diagnosis: Extract<Diagnosis, { is: Is }>,
  nowMs: number,
) => Text;

function both(say: (language: ReplyLanguage, duration: (ms: number) => string) => string): Text {
  const of = (language: ReplyLanguage): string => say(language, (ms) => durationText(language, ms));
  return { zh: of("zh"), en: of("en") };
}

function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

function people(names: readonly string[], language: ReplyLanguage): string {
  return names.length === 0
    ? language === "zh"
      ? "（无人）"
      : "no person"
    : names.join(language === "zh" ? "、" : ", ");
}

/** A time of day, such as `12:03:10 UTC`: clocks of operators differ. */
function clock(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(11, 19)} UTC`;
}

/** What is wrong with a model that is asked again later. */
const failings: Readonly<Record<string, Text>> = {
  api_overloaded: { zh: "过载", en: "is overloaded" },
  api_rate_limit: { zh: "暂时不再接受请求", en: "takes no more requests now" },
  stream_truncated: { zh: "中断了回答", en: "broke its answer off" },
};

/** Before a worker has taken the message, or while it has. */
const onTheWay = {
  unknown: () => ({
    zh: "没有这条消息的记录：它没有到达过 ingress，或者记录已过期。",
    en: "Nothing is known of it: it has not reached ingress, or its trace has expired.",
  }),
  refused: ({ reason }) =>
    refusals[reason] ?? { zh: `未处理：${reason}。`, en: `It was not taken: ${reason}.` },
  not_stored: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `${duration(nowMs - sinceMs)}前收到，但没有存入会话；没有确认，平台会重新投递。`
        : `It was received ${duration(nowMs - sinceMs)} ago but not stored. It was not acknowledged, so it is delivered again.`,
    ),
  behind: ({ ahead }) => ({
    zh: `在这个会话的 ${ahead} 条消息之后等待。`,
    en: `It waits behind ${counted(ahead, "message")} of this conversation.`,
  }),
  no_worker: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `已排队 ${duration(nowMs - sinceMs)}：没有存活的 agent-worker。`
        : `Queued for ${duration(nowMs - sinceMs)}: no worker is alive.`,
    ),
  paused: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `已排队 ${duration(nowMs - sinceMs)}：队列 turns 被暂停。`
        : `Queued for ${duration(nowMs - sinceMs)}: the queue turns is paused.`,
    ),
  queued: ({ sinceMs, workers }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `已排队 ${duration(nowMs - sinceMs)}，等待 ${workers} 个 worker 中的空闲者。`
        : `Queued for ${duration(nowMs - sinceMs)}, until one of ${counted(workers, "worker")} is free.`,
    ),
  wake_lost: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `会话在等待，但它的唤醒任务不在队列里（${duration(nowMs - sinceMs)}）；清扫任务会在几秒内补上。`
        : `Its wake-up is not in the queue (for ${duration(nowMs - sinceMs)}); the sweeper of the workers adds it within seconds.`,
    ),
  model: ({ sinceMs, model, again }, nowMs) =>
    both((language, duration) => {
      const passed = duration(nowMs - sinceMs);
      if (language === "zh") {
        const tries =
          again === undefined ? "" : `；这是第 ${again.attempt} 次尝试，上一次：${again.code}`;
        return `模型 ${model} 正在生成，已 ${passed}${tries}。`;
      }
      const tries =
        again === undefined ? "" : `; this is try ${again.attempt}, after ${again.code}`;
      return `The model ${model} has been answering for ${passed}${tries}.`;
    }),
  model_waits: ({ sinceMs, model, code, attempt, nextMs }, nowMs) =>
    both((language, duration) => {
      const [passed, rest] = [duration(nowMs - sinceMs), duration(nextMs - nowMs)];
      const why =
        failings[code]?.[language] ??
        (language === "zh" ? `无法回答（${code}）` : `cannot answer (${code})`);
      return language === "zh"
        ? `模型${model === "" ? "" : ` ${model} `}${why}（已 ${passed}），第 ${attempt} 次尝试在 ${clock(nextMs)}，${rest}后。`
        : `The model ${model === "" ? "" : `${model} `}${why} (for ${passed}); try ${attempt} follows at ${clock(nextMs)}, in ${rest}.`;
    }),
  working: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `worker 正在处理，已 ${duration(nowMs - sinceMs)}。`
        : `A worker has been working on it for ${duration(nowMs - sinceMs)}.`,
    ),
  worker_died: ({ sinceMs, during }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `处理它的进程在 ${during} 中消失（开始于 ${duration(nowMs - sinceMs)}前）；另一个 worker 会接手。`
        : `The process that worked on it is gone in the middle of ${during}, begun ${duration(nowMs - sinceMs)} ago; another worker takes it up.`,
    ),
} satisfies Partial<{ [Is in Diagnosis["is"]]: Say<Is> }>;

const asksPeople: Say<"approval"> = ({ tool, deciders, sinceMs, untilMs, aside }, nowMs) =>
  both((language, duration) => {
    const [passed, rest] = [duration(nowMs - sinceMs), duration(untilMs - nowMs)];
    if (language === "zh") {
      const others = aside === true ? "期间照常回答群里其他人的消息。" : "";
      return `调用 ${tool} 等待 ${people(deciders, language)} 审批，已 ${passed}，${rest}后过期。${others}`;
    }
    const others = aside === true ? " Others of the group are answered meanwhile." : "";
    return `The call ${tool} has waited for the approval of ${people(deciders, language)} for ${passed}; it expires in ${rest}.${others}`;
  });

/** What a helper does. `asked`: the call that people decide about, "" for a question. */
function helperDoes(does: "queued" | "works" | "asks", asked: string): Text {
  if (does === "queued") {
    return { zh: "它在排队，等待空闲的 worker", en: "it is in the queue for a worker" };
  }
  if (does === "works") return { zh: "它正在工作", en: "it is at work" };
  if (asked === "") return { zh: "它在等人回答问题", en: "it waits for a person: a question" };
  return { zh: `它在等人批准 ${asked}`, en: `it waits for a person: approval of ${asked}` };
}

/** While a call waits or runs. */
const inCalls = {
  helper: ({ agent, does, asked = "", sinceMs }, nowMs) =>
    both((language, duration) => {
      const what = helperDoes(does, asked)[language];
      return language === "zh"
        ? `等待助手 ${agent}，已 ${duration(nowMs - sinceMs)}：${what}。`
        : `It has waited for its helper ${agent} for ${duration(nowMs - sinceMs)}: ${what}.`;
    }),
  approval: asksPeople,
  set_aside: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `审批已结束（回合开始于 ${duration(nowMs - sinceMs)}前），等当前正在回答的消息结束后继续。`
        : `People have decided; it continues when the message that is being answered now has its answer (begun ${duration(nowMs - sinceMs)} ago).`,
    ),
  behind_own: ({ asked }, nowMs) => {
    const why =
      asked === undefined ? { zh: "", en: "" } : asksPeople({ ...asked, aside: false }, nowMs);
    return {
      zh: `在同一个人的上一条消息之后等待。${why.zh}`,
      en: `It waits behind an earlier message of the same person.${why.en === "" ? "" : ` ${why.en}`}`,
    };
  },
  no_runner: ({ tool, runner, sinceMs, untilMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `调用 ${tool} 等待 runner ${runner}，它不在线（已 ${duration(nowMs - sinceMs)}，${duration(untilMs - nowMs)}后超时）。`
        : `The call ${tool} waits for the runner ${runner}, which is not there (for ${duration(nowMs - sinceMs)}, given up in ${duration(untilMs - nowMs)}).`,
    ),
  call_queued: ({ tool, runner, sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `调用 ${tool} 在 runner ${runner} 的队列里，已 ${duration(nowMs - sinceMs)}。`
        : `The call ${tool} has been in the queue of the runner ${runner} for ${duration(nowMs - sinceMs)}.`,
    ),
  call_running: ({ tool, runner, sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `工具 ${tool} 正在 runner ${runner} 上运行，已 ${duration(nowMs - sinceMs)}。`
        : `The tool ${tool} has been running in the runner ${runner} for ${duration(nowMs - sinceMs)}.`,
    ),
} satisfies Partial<{ [Is in Diagnosis["is"]]: Say<Is> }>;

/** When the turn is over. */
const afterTurn = {
  reply_refused: ({ problem, attempts, retryAtMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `回答已完成，但平台拒收（${problem}，已试 ${attempts} 次），${duration(retryAtMs - nowMs)}后重试。`
        : `The answer is there, but Feishu refuses it (${problem}, tried ${counted(attempts, "time")}); next try in ${duration(retryAtMs - nowMs)}.`,
    ),
  reply_behind: ({ ahead, problem, retryAtMs }, nowMs) =>
    both((language, duration) => {
      const why = problem === "" ? "" : language === "zh" ? `（${problem}）` : ` (${problem})`;
      return language === "zh"
        ? `回答已完成，在 ${ahead} 条未送达的回复${why}之后等待，${duration(retryAtMs - nowMs)}后重试。`
        : `The answer is there and waits behind ${counted(ahead, "reply", "replies")}${why} not delivered yet; next try in ${duration(retryAtMs - nowMs)}.`;
    }),
  reply_waiting: ({ sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `回答已完成，正在送达（${duration(nowMs - sinceMs)}）。`
        : `The answer is there and on its way to Feishu (for ${duration(nowMs - sinceMs)}).`,
    ),
  given_up: ({ reason }) => ({
    zh: `回答已完成，但送达被放弃：${reason}。`,
    en: `The answer is there, but its delivery was given up: ${reason}.`,
  }),
  failed: ({ code, ms }) =>
    both((language, duration) =>
      language === "zh"
        ? `${duration(ms)}后以错误结束：${code}，已告知对方。`
        : `The turn failed after ${duration(ms)} with ${code}; the reply says so.`,
    ),
  ended: ({ outcome, ms }) =>
    both((language, duration) => {
      const text = endings[outcome]?.[language] ?? outcome;
      return language === "zh"
        ? `${duration(ms)}后结束：${text}。`
        : `Over after ${duration(ms)}: ${text}.`;
    }),
  agent_paused: ({ agent, by, sinceMs }, nowMs) =>
    both((language, duration) =>
      language === "zh"
        ? `智能体 ${agent} 已被 ${by} 暂停（自 ${clock(sinceMs)} 起，已 ${duration(nowMs - sinceMs)}），已告知对方。`
        : `${by} paused the agent ${agent} at ${clock(sinceMs)}, ${duration(nowMs - sinceMs)} ago; the reply says so.`,
    ),
  answered: ({ ms }) =>
    both((language, duration) =>
      language === "zh" ? `${duration(ms)}后已回答。` : `Answered after ${duration(ms)}.`,
    ),
  forgotten: () => ({
    zh: "会话里已没有它的记录：会话被重置，或记录已过期。",
    en: "Its conversation does not know it any more: it was reset, or what was kept has expired.",
  }),
} satisfies Partial<{ [Is in Diagnosis["is"]]: Say<Is> }>;

const endings: Readonly<Record<string, Text>> = {
  joined: { zh: "并入了正在进行的回答", en: "it became part of the answer under way" },
  stopped: { zh: "被停止", en: "a person stopped it" },
  recalled: { zh: "发送者撤回了消息", en: "its sender took the message back" },
  superseded: { zh: "被后一条消息取代", en: "a later message took its place" },
  cancelled: { zh: "被取消", en: "it was cancelled" },
  client_disconnected: { zh: "客户端断开", en: "the client went away" },
  agent_paused: { zh: "智能体当时被管理员暂停", en: "an operator had paused its agent" },
};

const sentences: { [Is in Diagnosis["is"]]: Say<Is> } = { ...onTheWay, ...inCalls, ...afterTurn };

/** The reason in one sentence. */
export function sentenceOf(language: ReplyLanguage, diagnosis: Diagnosis, nowMs: number): string {
  // The table has for each kind the function of that kind.
  const say = sentences[diagnosis.is] as (given: Diagnosis, nowMs: number) => Text;
  return say(diagnosis, nowMs)[language];
}

/** What a vendor said, as a sentence of its own. */
export function refusalText(
  language: ReplyLanguage,
  { model, problem, requestId }: Refusal,
): string {
  if (language === "zh") {
    return `模型 ${model} 的最近一次调用失败：“${problem}”${requestId === "" ? "" : `（请求 ID：${requestId}）`}。`;
  }
  const asked = requestId === "" ? "" : ` (request id ${requestId})`;
  return `The last call of the model ${model} failed: “${problem}”${asked}.`;
}

const happenings: Readonly<Record<string, Text>> = {
  "message.received": { zh: "收到消息", en: "Message received" },
  "message.receive": { zh: "接收与存储", en: "Taken in and stored" },
  "message.refused": { zh: "未受理", en: "Not taken" },
  "message.appended": { zh: "进入会话", en: "In its conversation" },
  "turn.claimed": { zh: "worker 接手", en: "Taken by a worker" },
  "turn.healed": { zh: "从中断恢复", en: "Taken up after a crash" },
  "turn.run": { zh: "处理回合", en: "Turn at work" },
  "model.step": { zh: "模型生成", en: "Model step" },
  "model.retried": { zh: "再次询问模型", en: "Model asked again" },
  "stream.first_text": { zh: "首段文字", en: "First text" },
  "call.judged": { zh: "权限判定", en: "Judged by the policy" },
  "call.handed_out": { zh: "交给 runner", en: "Handed out" },
  "tool.run": { zh: "工具运行", en: "Tool at work" },
  "call.outcome": { zh: "工具结果", en: "Outcome of the call" },
  "approval.asked": { zh: "请求审批", en: "People are asked" },
  "approval.settled": { zh: "审批结束", en: "The question is settled" },
  "card.write": { zh: "写卡片或消息", en: "Writing a card or message" },
  "limiter.waited": { zh: "等待限流", en: "Held back by the limits" },
  "turn.ended": { zh: "回合结束", en: "Turn over" },
  "reply.deliver": { zh: "送达回答", en: "Reply on its way" },
  "reply.sent": { zh: "已送达", en: "Delivered" },
  "reply.failed": { zh: "送达失败", en: "Not delivered" },
  error: { zh: "错误", en: "Error" },
};

/** What a line of a timeline is called; a name that is not known stands for itself. */
export function happeningText(language: ReplyLanguage, name: string): string {
  return happenings[name]?.[language] ?? name;
}

const tags: Readonly<Record<string, Text>> = {
  agent: { zh: "智能体", en: "agent" },
  ahead: { zh: "前面", en: "ahead" },
  api: { zh: "接口", en: "API" },
  approval: { zh: "审批", en: "approval" },
  attempt: { zh: "第几次", en: "attempt" },
  attempts: { zh: "次数", en: "attempts" },
  call: { zh: "调用", en: "call" },
  calls: { zh: "工具调用", en: "calls" },
  channel: { zh: "渠道", en: "channel" },
  code: { zh: "错误", en: "code" },
  decision: { zh: "判定", en: "decision" },
  givenUp: { zh: "已放弃", en: "given up" },
  input: { zh: "输入 token", en: "input tokens" },
  kind: { zh: "类型", en: "kind" },
  model: { zh: "模型", en: "model" },
  operation: { zh: "接口", en: "operation" },
  outcome: { zh: "结果", en: "outcome" },
  output: { zh: "输出 token", en: "output tokens" },
  problem: { zh: "说明", en: "problem" },
  purpose: { zh: "用途", en: "purpose" },
  queuedMs: { zh: "排队", en: "queued" },
  ranMs: { zh: "运行", en: "ran" },
  reason: { zh: "原因", en: "reason" },
  result: { zh: "结果", en: "result" },
  requestId: { zh: "请求 ID", en: "request id" },
  resumed: { zh: "继续之前的回合", en: "continues its turn" },
  retryInMs: { zh: "重试间隔", en: "next try in" },
  runner: { zh: "runner", en: "runner" },
  seq: { zh: "序号", en: "number" },
  state: { zh: "状态", en: "state" },
  tool: { zh: "工具", en: "tool" },
  tries: { zh: "崩溃次数", en: "crashes" },
  waitMs: { zh: "再次询问前等待", en: "asked again after" },
  waitedMs: { zh: "等待", en: "waited" },
  what: { zh: "内容", en: "what" },
};

/** What is usual, and so not worth a word: in the first attempt nothing has crashed. */
function isUsual(name: string, value: string | number | boolean): boolean {
  if (value === "" || value === false) return true;
  return (
    (name === "tries" && value === 0) ||
    ((name === "attempt" || name === "attempts") && value === 1)
  );
}

/** One fact of a line, such as `tool deploy`; undefined for facts that are not shown. */
export function tagText(
  language: ReplyLanguage,
  name: string,
  value: string | number | boolean,
): string | undefined {
  if (isUsual(name, value)) return undefined;
  const label = tags[name]?.[language] ?? name;
  if (value === true) return label;
  if (typeof value === "number" && name === "ms") return durationText(language, value);
  return `${label} ${typeof value === "number" && name.endsWith("Ms") ? durationText(language, value) : value}`;
}
