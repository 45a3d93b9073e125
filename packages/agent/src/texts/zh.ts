import { shortCount, type Texts } from "./en.ts";

/** All texts that people read around answers, in Chinese; what each one is for says en.ts. */
export const zh: Texts = {
  notices: {
    empty: "模型没有给出任何回答，请换个说法再试一次。",
    exhausted: "已达到最大步数，请求没有完成。",
    refusal: "模型拒绝回答这个请求。",
    truncated: "回答达到长度上限，被截断了。",
    sources: "来源：",
    oddEnd: "模型没有以正常的方式结束回答，内容可能不完整。",
    callCutOff: "回答达到长度上限，工具调用没有写完，因此没有执行任何操作。",
    callsDropped: "模型的回答没有正常结束，其中的工具调用没有执行。",
    outputInvalid: "回答不符合要求的格式。",
    stopped: "已停止。",
    recalled: "消息已被撤回，处理已停止。",
    superseded: "收到了新的消息，这一条已停止，接着处理新的消息。",
    cancelled: "已取消。",
    modelBusy: "模型繁忙",
    modelAway: "模型没有响应",
    modelAgain: "{what}：约 {seconds} 秒后进行第 {tries} 次尝试",
    modelAsked: "{what}：正在进行第 {tries} 次尝试",
    modelNext: "{what}：改用 {model}",
    failed: "抱歉，模型服务出错，这条消息没有得到回答。",
    failedForAccess:
      "抱歉，模型服务拒绝了这个机器人：密钥不对，或账户余额不足。重试没有用，请告诉负责这个机器人的人。",
    failedForRequest:
      "抱歉，模型服务不接受这个请求：模型或设置可能有误。重试没有用，请告诉负责这个机器人的人。",
    failedForNow: "抱歉，模型服务暂时不可用，请稍后再试。",
    refused:
      "抱歉，模型供应商拒绝了这条消息或随它发送的内容。对话会略去它继续进行：请换个说法再试。如果仍然不行，发送 /新对话 开始新的对话。",
    leftOut: "模型供应商拒绝了请求，因此回答时略去了：{pieces}。",
    tooLong: "对话太长，模型无法继续，请开始新的对话。",
    abandoned: "抱歉，处理这条消息时多次出错，已放弃。已执行的操作不会撤销。",
    settingsLost: "这个对话的设置无法读取，已恢复为默认设置。",
    summaryLost: "较早对话的摘要无法读取，其中的内容不再影响回答。",
    filesUnread: "无法读取文件：{files}",
    waitsForYou:
      "我还在等你对“{what}”的答复：请在那张卡片上操作，或回复那张卡片。这条消息排在它后面。",
    queued: "已收到，前面还有 {ahead} 条消息，轮到后会回答。",
    busy: "我正在处理上一条消息，这条没有被处理。请等我回答完，或发送 /停止 后再试。",
    nothingToStop: "现在没有正在进行的任务。",
    stopping: "正在停止。",
    notAllowedToStop: "这个任务只能由 {who} 停止。",
    late: "这条消息 {minutes} 分钟前发出，现在才送达，还没有处理。现在还需要处理吗？",
    ruleRevoked: "已撤销规则 {rule}，以后会重新询问。",
    ruleUnknown: "没有名为“{rule}”的规则。用 /权限 查看现有规则。",
    grantAlone: "你允许我以你的身份做什么，只有你能看到：我已在单聊里发给你。",
    grantNone: "你没有允许我以你的身份做任何事。",
    grantWithdrawn: "已收回：我不能再以你的身份操作。需要时我会重新询问你。",
    grantEnding: "已收到：工作进程空闲后就会收回，飞书那边也一并结束。用 /权限 查看结果。",
    grantEnds:
      "到 {date}，你允许我以你的身份操作就满一年了，飞书会在那天结束授权。可能受影响的定时任务：{count} 个。此后第一个需要授权的任务会重新询问你。用 /权限 查看你的授权。",
    scheduleFailed: "你的定时任务「{title}」已连续失败五次，现已暂停。用 /定时 查看。",
    scheduleUnreachable: "你的定时任务「{title}」无法把消息发到它的聊天，现已暂停。用 /定时 查看。",
    consentTaken: "谢谢。后续请看飞书里与机器人的会话；可以关闭此页。",
    consentRefused: "没有授予任何权限，可以关闭此页。",
    consentStale: "此链接已失效，请在机器人的卡片上获取新的链接。",
    schedulesLeft: "有成员离开了组织，他在本聊天的定时任务已暂停：{titles}。",
    schedulesRevoked: "应用不能再以你的身份操作，你的定时任务已暂停：{titles}。用 /定时 查看。",
    schedulesBotGone: "我已不在这些定时任务的聊天里，它们已暂停：{titles}。用 /定时 查看。",
    schedulesZone:
      "你的时区现在是 {zone}。这些定时任务仍按原来的 {before} 运行：{titles}。如需调整请告诉我。",
    readInGroup: "以你的身份读取的内容，群里所有成员都会看到。",
    memoryAsked: "要记住这条内容吗？这个对话里读取过不是你写的内容，可能是它要求记住的。",
    memoryForgotten: "已忘掉。",
    memoryUnknown: "没有这个编号的内容。用 /记忆 查看记住的内容。",
    memoryOff: "今后不再记住关于你的内容，已忘掉 {count} 条。用 /记忆 开启 重新开始。",
    memoryOn: "今后可以记住你让我记住的内容。",
    notAllowedToRevoke: "这条规则只能由 {who} 撤销。",
    modelUnknown: "没有名为“{model}”的模型可选。",
    modelChosen: "这个对话现在使用模型 {model}。",
    modelReset: "这个对话恢复使用默认模型 {model}。",
    commandUnknown: "没有 /{name} 这个命令。发送 /帮助 查看所有命令。",
    commandNear: "没有 /{name} 这个命令。你是不是想用 {near}？",
    agentUnknown: "没有名为“{agent}”的智能体可选。",
    agentChosen: "从现在起由智能体 {agent} 回答。",
    agentGone: "智能体 {agent} 已不在配置中，改由 {now} 回答。",
    agentElsewhere: "智能体 {agent} 不在这里回答你，改由 {now} 回答。",
    agentRefused: "抱歉，智能体 {agent} 不在这里为你服务。",
    agentPaused: "管理员已暂停智能体 {agent}，请稍后再试。",
    teamLimit: "团队已达到上限，讨论到此结束。",
    compacted: "已压缩对话：约 {before} 个 token 减到约 {after} 个。之前的内容保留为摘要。",
    shortened: "无法生成摘要，因此直接移除了较早的内容：约 {before} 个 token 减到约 {after} 个。",
    nothingToCompact: "没有更早的内容可以压缩。",
    newConversation: "已开始新的对话，之前的内容不再影响回答。",
  },
  colon: "：",
  comma: "、",
  semicolon: "；",
  labelled: (label, value) => `- ${label}：${value}`,
  pieces: {
    image: "图片",
    file: "附件",
    thinking: "模型之前的思考",
    result: "工具的结果",
    message: "较早的消息",
    plain: "可选的设置和工具的细节",
  },
  summaries: {
    text: (count) => `文本 ${shortCount(count)} 字`,
    json: (count) => `JSON，${shortCount(count)} 项`,
    error: (count) => `错误 ${shortCount(count)} 字`,
  },
  answers: { yes: "是", no: "否", nothing: "–" },

  commands: {
    help: { typed: "帮助", description: "显示可用的命令" },
    new: { typed: "新对话", description: "开始新的对话，不再参考之前的内容" },
    stop: { typed: "停止", description: "停止正在进行的任务" },
    status: { typed: "状态", description: "查看这个对话的状态" },
    model: { typed: "模型", description: "查看或选择模型，例如 /模型 名称" },
    agent: { typed: "智能体", description: "查看或选择由谁回答，例如 /智能体 名称" },
    compact: { typed: "压缩", description: "把较早的内容压缩成摘要" },
    whoami: { typed: "我是谁", description: "显示机器人看到的你的身份" },
    usage: { typed: "用量", description: "查看额度和已用的部分" },
    memory: { typed: "记忆", description: "查看或忘掉记住的内容，例如 /记忆 忘记 1、/记忆 关闭" },
    schedules: {
      typed: "定时",
      description: "查看或修改定时任务，例如 /定时 暂停 1、/定时 删除 1",
    },
    permissions: {
      typed: "权限",
      description:
        "查看或撤销不再询问的操作，以及你允许我以你的身份做什么：/权限 撤销 1、/权限 收回",
    },
  },
  helpTitle: "可以直接提问，也可以使用这些命令：",
  helpLine: (typed, name, description) => `- \`/${typed}\` 或 \`/${name}\`：${description}`,

  status: {
    state: "状态",
    idle: "空闲",
    answering: (seconds, step, tools) =>
      `正在回答，已进行 ${seconds} 秒，第 ${step} 步${tools.length > 0 ? `，正在等待 ${tools.join("、")}` : ""}`,
    waitingForDecision: "等待审批",
    askedCall: ({ tool, requester, deciders, since }) =>
      `${tool}（${requester} 发起，由 ${deciders} 决定，已等待 ${since}）`,
    minutes: (count) => `${count} 分钟`,
    hours: (count) => `${count} 小时`,
    waitingMessages: "等待中的消息",
    messages: "对话中的消息",
    model: "模型",
    name: "名字",
    userId: "用户 ID",
    app: "应用",
    conversation: "对话",
    agent: "智能体",
  },

  models: {
    current: (model) => `当前模型：${model}`,
    isDefault: "（默认）",
    how: "用 `/模型 名称` 选择，用 `/模型 默认` 恢复：",
  },

  agents: {
    current: (agent) => `当前智能体：${agent}`,
    how: "用 `/智能体 名称` 选择，用 `/智能体 默认` 恢复：",
  },

  permissions: {
    none: "这里没有已记住的许可。",
    title: "这里不再询问的操作：",
    hint: "用 `/权限 撤销 编号` 撤销。",
    forEverybody: "对群内所有人",
    forOne: (name) => `仅对 ${name}`,
    rule: ({ whom, author, until }) => `${whom}，由 ${author} 允许，有效至 ${until}`,
  },

  schedules: {
    none: "你还没有定时任务。直接告诉我要做什么、什么时候做。",
    title: "你的定时任务：",
    hint: "用 `/定时 暂停`、`恢复` 或 `删除` 加编号来修改。",
    paused: "已暂停",
    done: {
      pause: "已暂停。用 /定时 恢复 加编号重新开始。",
      resume: "已恢复运行。",
      run: "现在开始运行。",
      delete: "已删除。",
      notYours: "只有它的主人可以这样做。",
      busy: "它之前的运行还没有结束。",
      changed: "它已经变了，请再看一次 /定时。",
      none: "没有这个编号的定时任务。用 /定时 查看。",
      past: "它的时间已经过了。请重新创建。",
    },
  },

  memory: {
    none: "这里没有记住任何内容。",
    off: "关于你的内容不会被记住，也不会被查找。用 `/记忆 开启` 重新开始。",
    title: "我记住的内容：",
    line: (number, text, about) => `${number}. ${text}${about === "chat" ? "（本聊天）" : ""}`,
    hint: "用 `/记忆 忘记` 加编号忘掉一条，用 `/记忆 关闭` 忘掉关于你的全部内容。",
    alone: "关于你个人的内容，只在单独对话时告诉你。",
  },

  deciders: {
    requester: "发起人",
    role: (name) => `角色“${name}”的成员`,
    operators: "控制台的管理员",
    nobody: "没有人",
  },

  cancelled: {
    done: "已完成：",
    failed: "执行失败：",
    maybe: "被中断，可能已经生效，请检查：",
    harmless: "被中断，没有影响：",
    helpers: "协助者已停止，不再运行：",
    notRun: "没有执行：",
    earlier: (count) => `更早的 ${count} 次调用`,
  },

  budgets: {
    owners: {
      person: "你",
      chat: "这个会话",
      agent: "这个智能体",
      tenant: "你的企业",
      deployment: "整个服务",
    },
    periods: { day: "今天", month: "本月" },
    tokens: (count) => `${count} token`,
    ofLimit: (spent, limit) => `${spent} / ${limit}`,
    between: "，",
    inBrackets: (text) => `（${text}）`,
    administrator: "管理员",
    spent: ({ owner, span, limit, renewal, timeZone, contact }) =>
      `${owner}${span}的额度已用完${limit}，${renewal}（${timeZone}）恢复。${askForMore(contact)}`,
    near: (owner, span, percent) => `${owner}${span}的额度已用 ${percent}`,
    unlimited: "不限",
    usage: ({ owner, span, used, renewal }) => `- ${owner}${span}：${used}，${renewal} 重新计算`,
    none: "这里没有设置额度。",
    footer: (timeZone, contact) =>
      `时间按 ${timeZone} 计算。${contact === undefined ? "" : askForMore(contact)}`,
  },
};

/** A blank stands between Chinese and other letters. */
function askForMore(contact: string): string {
  return `需要更多额度请联系${/^\p{Script=Han}/u.test(contact) ? "" : " "}${contact}。`;
}
