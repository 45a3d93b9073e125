import type { Approval, DecisionWord, ReplyLanguage, RiskLevel, SettledState } from "@larkline/protocol";

/** How a card says that it is over: its title, and a line of markdown. `tool` is safe for where it goes. */
interface Ending {
  title: (tool: string) => string;
  text: (tool: string) => string;
}

/** States that an approval of some kind cannot reach are told like `cancelled`. */
type Endings = { cancelled: Ending } & Partial<Record<SettledState, Ending>>;

interface KindTexts {
  title: (tool: string) => string;
  /** Markdown; what it is about follows in a code block on the next line. */
  question: (tool: string) => string;
  endings: Endings;
}

/** What the card of an approval says. */
export interface ApprovalTexts {
  kinds: Record<Approval["kind"], KindTexts>;
  approve: string;
  reject: string;
  rejectWithReason: string;
  reasonHint: string;
  /** `who`: whose calls the rule is about; absent: anybody's. */
  always: (rule: string, who?: string) => string;
  alwaysTitle: string;
  alwaysText: (rule: string, who?: string) => string;
  /** A person whose name is not known. */
  somebody: string;
  retry: string;
  retryTitle: string;
  retryText: string;
  abort: string;
  markDone: string;
  noteHint: string;
  reason: string;
  risk: Record<RiskLevel, string>;
  requester: string;
  deciders: string;
  /** Followed by the person whose calls a rule is about. */
  onlyOf: string;
  progress: (have: number, need: number) => string;
  /** Where people may decide one way or another. */
  agree: (need: number) => string;
  decidedBy: Record<DecisionWord, string>;
  /** Followed by a time. */
  expires: string;
  decidedAt: string;
  allArguments: (characters: number) => string;
  notShown: (characters: number) => string;
  /** Between a label and what it is about. */
  colon: string;
  /** Between names. */
  comma: string;
}

const en: ApprovalTexts = {
  kinds: {
    call: {
      title: (tool) => `Approve ${tool}?`,
      question: (tool) => `The agent wants to run **${tool}** with:`,
      endings: {
        approved: { title: (tool) => `${tool} approved`, text: (tool) => `Action **${tool}** was approved.` },
        rejected: { title: (tool) => `${tool} rejected`, text: (tool) => `Action **${tool}** was rejected.` },
        expired: {
          title: (tool) => `${tool} expired`,
          text: (tool) => `Nobody decided about **${tool}** in time, so it did not run.`,
        },
        cancelled: {
          title: (tool) => `${tool} cancelled`,
          text: (tool) => `The task ended before anybody decided about **${tool}**, so it did not run.`,
        },
        undeliverable: {
          title: (tool) => `${tool} not decided`,
          text: (tool) => `Nobody could be asked about **${tool}**, so it did not run.`,
        },
      },
    },
    outcome: {
      title: (tool) => `Did ${tool} take effect?`,
      question: (tool) =>
        `**${tool}** was started, and nobody can say whether it took effect. Check that first. It was called with:`,
      endings: {
        retried: { title: (tool) => `${tool} run again`, text: (tool) => `Action **${tool}** is run again.` },
        done: { title: (tool) => `${tool} done`, text: (tool) => `Action **${tool}** was marked as done.` },
        aborted: { title: (tool) => `${tool} given up`, text: (tool) => `Action **${tool}** was given up.` },
        expired: {
          title: (tool) => `${tool}: outcome unknown`,
          text: (tool) => `Nobody said in time what became of **${tool}**: that stays unknown.`,
        },
        cancelled: {
          title: (tool) => `${tool}: outcome unknown`,
          text: (tool) => `The task ended before anybody said what became of **${tool}**: that stays unknown.`,
        },
        undeliverable: {
          title: (tool) => `${tool}: outcome unknown`,
          text: (tool) => `Nobody could be asked what became of **${tool}**: that stays unknown.`,
        },
      },
    },
    rule: {
      title: (tool) => `Always allow ${tool}?`,
      question: (tool) =>
        `Calls of **${tool}** were approved here several times. Run these without asking in this chat from now on?`,
      endings: {
        approved: {
          title: (tool) => `${tool} always allowed`,
          text: (tool) => `These calls of **${tool}** run without asking from now on. /permissions revokes that.`,
        },
        cancelled: {
          title: (tool) => `${tool} still asked about`,
          text: (tool) => `Calls of **${tool}** are asked about as before.`,
        },
      },
    },
  },
  approve: "Approve",
  reject: "Reject",
  rejectWithReason: "Reject with this reason",
  reasonHint: "Why not, or what to do instead",
  always: (rule, who) => `Always allow in this chat${who === undefined ? "" : ` for ${who}`}: ${rule}`,
  alwaysTitle: "Always allow this?",
  alwaysText: (rule, who) =>
    `This call is approved, and from now on nobody is asked in this chat about calls ${who === undefined ? "" : `of ${who} `}that fit ${rule}. /permissions lists and revokes such rules.`,
  somebody: "the requester",
  retry: "Run it again",
  retryTitle: "Run it again?",
  retryText: "If it took effect the first time, it happens twice.",
  abort: "Give it up",
  markDone: "It took effect: mark as done",
  noteHint: "What came of it, for the agent to know",
  reason: "Reason",
  risk: { low: "Risk: low", medium: "Risk: medium", high: "⚠️ Risk: high" },
  requester: "Requested by",
  deciders: "May decide",
  onlyOf: "Only for calls of",
  progress: (have, need) => `${have} of ${need} approved`,
  agree: (need) => `${need} people have to decide the same`,
  decidedBy: {
    approve: "Approved by",
    reject: "Rejected by",
    retry: "Run again by",
    done: "Marked as done by",
    abort: "Given up by",
  },
  expires: "Open until",
  decidedAt: "Decided",
  allArguments: (characters) => `Arguments · ${characters.toLocaleString("en-US")} characters`,
  notShown: (characters) => `⚠️ ${characters.toLocaleString("en-US")} more characters of the arguments are not shown.`,
  colon: ": ",
  comma: ", ",
};

const zh: ApprovalTexts = {
  kinds: {
    call: {
      title: (tool) => `批准 ${tool}？`,
      question: (tool) => `智能体想要运行 **${tool}**，参数如下：`,
      endings: {
        approved: { title: (tool) => `${tool} 已批准`, text: (tool) => `操作 **${tool}** 已批准。` },
        rejected: { title: (tool) => `${tool} 已拒绝`, text: (tool) => `操作 **${tool}** 已拒绝。` },
        expired: {
          title: (tool) => `${tool} 已过期`,
          text: (tool) => `没有人在期限内对 **${tool}** 作出决定，它没有运行。`,
        },
        cancelled: {
          title: (tool) => `${tool} 已取消`,
          text: (tool) => `任务在有人决定之前就结束了，**${tool}** 没有运行。`,
        },
        undeliverable: {
          title: (tool) => `${tool} 未决定`,
          text: (tool) => `无法向任何人询问 **${tool}**，它没有运行。`,
        },
      },
    },
    outcome: {
      title: (tool) => `${tool} 生效了吗？`,
      question: (tool) => `**${tool}** 已经开始运行，但无法确认是否生效，请先核实。调用参数如下：`,
      endings: {
        retried: { title: (tool) => `${tool} 重新运行`, text: (tool) => `操作 **${tool}** 将重新运行。` },
        done: { title: (tool) => `${tool} 已完成`, text: (tool) => `操作 **${tool}** 已标记为完成。` },
        aborted: { title: (tool) => `${tool} 已放弃`, text: (tool) => `操作 **${tool}** 已放弃。` },
        expired: {
          title: (tool) => `${tool}：结果未知`,
          text: (tool) => `没有人在期限内说明 **${tool}** 的结果，结果仍然未知。`,
        },
        cancelled: {
          title: (tool) => `${tool}：结果未知`,
          text: (tool) => `任务在有人说明 **${tool}** 的结果之前就结束了，结果仍然未知。`,
        },
        undeliverable: {
          title: (tool) => `${tool}：结果未知`,
          text: (tool) => `无法向任何人询问 **${tool}** 的结果，结果仍然未知。`,
        },
      },
    },
    rule: {
      title: (tool) => `始终允许 ${tool}？`,
      question: (tool) => `**${tool}** 在这里已多次获得批准。以后在本会话中，下面这类调用不再询问，直接运行吗？`,
      endings: {
        approved: {
          title: (tool) => `${tool} 始终允许`,
          text: (tool) => `以后 **${tool}** 的这类调用不再询问，直接运行。可用 /permissions 撤销。`,
        },
        cancelled: { title: (tool) => `${tool} 仍需批准`, text: (tool) => `**${tool}** 的调用仍会照常询问。` },
      },
    },
  },
  approve: "批准",
  reject: "拒绝",
  rejectWithReason: "附上理由并拒绝",
  reasonHint: "为什么不行，或者应该怎么做",
  always: (rule, who) => `在本会话中始终允许${who === undefined ? "" : `（仅限${who}）`}：${rule}`,
  alwaysTitle: "始终允许？",
  alwaysText: (rule, who) =>
    `批准这次调用，并且以后在本会话中，${who === undefined ? "" : `${who}的`}符合 ${rule} 的调用不再询问。可用 /permissions 查看和撤销这类规则。`,
  somebody: "发起人",
  retry: "重新运行",
  retryTitle: "重新运行？",
  retryText: "如果第一次已经生效，它会发生两次。",
  abort: "放弃",
  markDone: "已经生效：标记为完成",
  noteHint: "结果如何，会告诉智能体",
  reason: "理由",
  risk: { low: "风险：低", medium: "风险：中", high: "⚠️ 风险：高" },
  requester: "发起人",
  deciders: "可以决定的人",
  onlyOf: "仅限此人的调用",
  progress: (have, need) => `已有 ${have} 人批准，需要 ${need} 人`,
  agree: (need) => `需要 ${need} 人作出相同的决定`,
  decidedBy: {
    approve: "批准人",
    reject: "拒绝人",
    retry: "决定重新运行的人",
    done: "标记完成的人",
    abort: "放弃的人",
  },
  expires: "有效期至",
  decidedAt: "决定时间",
  allArguments: (characters) => `参数 · ${characters.toLocaleString("en-US")} 个字符`,
  notShown: (characters) => `⚠️ 参数还有 ${characters.toLocaleString("en-US")} 个字符没有显示。`,
  colon: "：",
  comma: "、",
};

export const approvalTexts: Record<ReplyLanguage, ApprovalTexts> = { zh, en };
