import { chromium } from "playwright-core";
const base = process.argv[2] ?? "http://127.0.0.1:18080"; const out="/tmp/standin/";
const b = await chromium.launch({ executablePath:"/usr/bin/chromium", args:["--no-sandbox","--disable-gpu","--disable-quic","--no-first-run","--disable-background-networking","--disable-component-update","--disable-sync"] });
for (const [n,w,h] of [["d",1280,800],["p",360,740]]) for (const c of ["light","dark"]) {
  const ctx = await b.newContext({ viewport:{width:w,height:h}, colorScheme:c });
  const p = await ctx.newPage();
  p.on("console", m=>console.log(n,c,m.text())); p.on("pageerror", e=>console.log(n,c,String(e)));
  await p.goto(base+"/?user=onfim27"); await p.waitForSelector('body[data-state=open]'); await p.waitForTimeout(900);
  await p.screenshot({path:`${out}${n}-${c}-empty.png`});
  const push = o => fetch(base+"/api/"+(o.channel?"publish":"push"),{method:"POST",headers:{"x-api-key":"demo","content-type":"application/json"},body:JSON.stringify(o)}).then(r=>r.text());
  await push({user:"onfim27",data:"Your parcel has left Novgorod"});
  await push({user:"onfim27",data:{order:42,state:"on its way",items:["bell","rope"]}});
  await push({user:"onfim27",binary:Buffer.from("Veche rings at noon \x01\x02\xff","latin1").toString("base64")});
  await push({channel:"news",data:"All to the square"});
  await p.click("#send"); await p.waitForFunction(()=>document.querySelectorAll(".push").length>=5);
  await p.click("#tab-php"); await p.waitForTimeout(1400);
  await p.screenshot({path:`${out}${n}-${c}-full.png`, fullPage:true});
  const over = await p.evaluate(()=>document.documentElement.scrollWidth-innerWidth+Math.max(...[...document.querySelectorAll('main *')].map(e=>e.getBoundingClientRect().right>innerWidth&&!e.closest('.waves')?1:0))); if(over>0) console.log(n,c,"overflow",over);
  await p.evaluate(async()=>{}); 
  if (c==="light"||n==="p") {
    await fetch(base+"/api/disconnect",{method:"POST",headers:{"x-api-key":"demo"},body:JSON.stringify({user:"onfim27",code:1013})});
    await p.waitForSelector('body[data-state=waiting]'); await p.evaluate(()=>scrollTo(0,0)); await p.waitForTimeout(500);
    await p.screenshot({path:`${out}${n}-${c}-lost.png`});
    await p.click("#retry"); await p.waitForSelector('body[data-state=open]');
    await fetch(base+"/api/disconnect",{method:"POST",headers:{"x-api-key":"demo"},body:JSON.stringify({user:"onfim27",code:3500})});
    await p.waitForSelector('body[data-state=ended]'); await p.evaluate(()=>scrollTo(0,0)); await p.waitForTimeout(500);
    await p.screenshot({path:`${out}${n}-${c}-ended.png`});
  }
  await ctx.close();
}
await b.close();
