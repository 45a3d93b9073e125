import type { CardTexts } from "./card-texts.ts";

export const zh: CardTexts = {
  thinking: "思考中…",
  thought: "思考过程",
  thoughtFor: "思考了 {} 秒",
  more: (count) => `另有 ${count} 个`,
  failed: (count) => `${count} 个失败`,
  rejected: "已拒绝",
  earlier: (count) => `…更早的 ${count} 次调用`,
  seconds: "{} 秒",
  waiting: "等待处理",
  waitsForPermission: "等待 {} 授权",
  waitsForApproval: "等待批准：{}",
  waitsForAnswer: "等待回答问题",
  away: "工具暂时离线，等它回来",
  queued: "排队 {} 秒",
  tokens: "输入 {} · 输出 {} token",
  trace: "追踪",
  again: { retry: "再试一次", continue: "继续" },
  whyHint: "好在哪里，或者哪里需要改进？",
  details: "详情",
  stop: "停止",
  speaking: "正在发言",
  choosingSpeaker: "正在选择下一位发言者",
  earlierSaid: (count) => `此前还有 ${count} 段`,
  noAnswer: "（没有回答）",
  rest: {
    later: "📄 回答很长，其余部分将以文件发送。",
    now: (file) => `📄 回答很长，其余部分见下面的文件 ${file}。`,
  },
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
  age: (ms) => {
    const minutes = Math.max(1, Math.round(ms / 60_000));
    if (minutes < 60) return `${minutes} 分钟`;
    if (minutes < 48 * 60) return `${Math.round(minutes / 60)} 小时`;
    return `${Math.round(minutes / 1440)} 天`;
  },
  welcome: {
    title: "你好",
    body: "直接发消息给我就可以开始；在群里请 @我。",
    commands: "可用的命令：",
  },
  grant: {
    title: "我能以你的身份做什么",
    list: "你允许我在你提出要求时，以你的名义：",
    since: "授权时间",
    unused: "若不再使用，结束于",
    until: "最晚结束于",
    lapsed: "授权已失效，需要时我会重新询问你。",
    used: "最近使用",
    never: "还没有使用过。",
    end: "收回授权",
    how: "也可以发送 /权限 收回。",
    ended: "已收回：我不能再以你的身份操作。需要时我会重新询问你。",
  },
  replaced: { title: "已重新生成", text: "这部分回答已重新生成，请看前面的卡片。" },
  textFollows: { title: "改为文本回复", text: "这张卡片无法继续显示，完整回答请看下面的消息。" },
  approval: {
    kinds: {
      call: {
        title: (tool) => `批准 ${tool}？`,
        question: (tool) => `智能体想要运行 **${tool}**，参数如下：`,
        endings: {
          approved: {
            title: (tool) => `${tool} 已批准`,
            text: (tool) => `操作 **${tool}** 已批准。`,
          },
          rejected: {
            title: (tool) => `${tool} 已拒绝`,
            text: (tool) => `操作 **${tool}** 已拒绝。`,
          },
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
        question: (tool) =>
          `**${tool}** 已经开始运行，但无法确认是否生效，请先核实。调用参数如下：`,
        endings: {
          retried: {
            title: (tool) => `${tool} 重新运行`,
            text: (tool) => `操作 **${tool}** 将重新运行。`,
          },
          done: {
            title: (tool) => `${tool} 已完成`,
            text: (tool) => `操作 **${tool}** 已标记为完成。`,
          },
          aborted: {
            title: (tool) => `${tool} 已放弃`,
            text: (tool) => `操作 **${tool}** 已放弃。`,
          },
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
        question: (tool) =>
          `**${tool}** 在这里已多次获得批准。以后在本会话中，下面这类调用不再询问，直接运行吗？`,
        endings: {
          approved: {
            title: (tool) => `${tool} 始终允许`,
            text: (tool) =>
              `以后 **${tool}** 的这类调用不再询问，直接运行。可用 /permissions 撤销。`,
          },
          cancelled: {
            title: (tool) => `${tool} 仍需批准`,
            text: (tool) => `**${tool}** 的调用仍会照常询问。`,
          },
        },
      },
    },
    consent: {
      title: "允许机器人以你的身份操作吗？",
      asks: (tool) => `执行 ${tool} 需要你授权，机器人才能以你的名义：`,
      task: "你的请求",
      life: (minutes) => `链接 ${minutes} 分钟内有效，截止`,
      afterwards: "授权后工作会自动继续。只有你本人可以授权。用 /权限 查看和收回。",
      open: "去授权",
      notNow: "暂不",
      again: "重新发起",
      states: {
        ran_out: "链接已过期，工作仍在等你。",
        other_person: "是另一个账号同意的。只有你本人可以授权，所以没有保留任何内容。",
        trouble: "平台暂时无法向你询问，请重试，或联系管理员。",
        moved: "之后的卡片会询问这项授权。",
      },
      endings: {
        approved: "已授权，工作继续",
        rejected: "未授权：机器人不会以你的身份操作",
        expired: "未及时授权",
        cancelled: "不再需要这项授权",
        undeliverable: "无法向你询问",
      },
    },
    question: {
      title: "有一个问题需要你回答",
      endings: {
        answered: "已回答",
        expired: "没有人及时回答",
        cancelled: "不再需要回答",
        undeliverable: "无法向任何人提问",
      },
      asker: "提问的智能体",
      deciders: "可以回答",
      hint: "你的回答",
      otherHint: "或者写下其他回答",
      send: "发送",
      server: (name) => `这是 MCP 服务器“${name}”提出的问题，并非机器人提问。请勿在此填写密码。`,
      decline: "拒绝回答",
      declined: "已拒绝回答",
      yes: "是",
      no: "否",
      answer: "回答",
    },
    approve: "批准",
    reject: "拒绝",
    rejectWithReason: "附上理由并拒绝",
    rejectWhy: "拒绝并说明理由…",
    reasonHint: "为什么不行，或者应该怎么做",
    always: "始终允许…",
    alwaysTitle: "始终允许？",
    alwaysText: (rule, who) =>
      `批准这次调用，并且以后在本会话中，${who === undefined ? "" : ownedBy(who)}符合 ${rule} 的调用不再询问。可用 /permissions 查看和撤销这类规则。`,
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
    named: "涉及的人",
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
      answer: "回答的人",
    },
    expires: "有效期至",
    decidedAt: "决定时间",
    allArguments: (characters) => `参数 · ${characters.toLocaleString("en-US")} 个字符`,
    notShown: (characters) => `⚠️ 参数还有 ${characters.toLocaleString("en-US")} 个字符没有显示。`,
    colon: "：",
    comma: "、",
  },
};

/** A blank stands between Chinese and other letters. */
function ownedBy(name: string): string {
  return `${name}${/\p{Script=Han}$/u.test(name) ? "" : " "}的`;
}
