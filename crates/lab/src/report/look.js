// Runs beside a frame that has a page: writes what a reader would not like to see, a line each.
function look(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, found = [];
  const say = (...words) => found.push(words.join(' '));
  const wide = view.innerWidth;
  if (page.documentElement.scrollWidth > wide) say('the page is', page.documentElement.scrollWidth, 'wide');
  const charts = page.querySelectorAll('svg.chart');
  for (const chart of charts) {
    const marks = [...chart.querySelectorAll('rect, circle, path')].map((mark) => mark.getBoundingClientRect());
    if (!marks.some((mark) => mark.width > 0 && mark.height > 0)) say('a chart has no mark:', chart.textContent);
    for (const text of chart.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.width == 0 || box.left < 0 || box.right > wide) say('a word of a chart is cut:', text.textContent, box.left, box.right);
    }
  }
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => numbers(colour).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = view.getComputedStyle(at).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = [...page.body.querySelectorAll('*')].filter((element) => !element.closest('style, script') &&
    [...element.childNodes].some((node) => node.nodeType == 3 && node.data.trim()));
  for (const element of texts) {
    const style = view.getComputedStyle(element), colour = element.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(colour), light(ground(element))].sort((one, other) => other - one);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) say('contrast', contrast.toFixed(2), colour, 'on', ground(element), element.textContent.slice(0, 40));
  }
  const scheme = view.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const ink = light(view.getComputedStyle(page.body).color) > light(ground(page.body)) ? 'light on dark' : 'dark on light';
  return [`looked: ${wide} wide, ${scheme}, ${ink}, charts ${charts.length}, texts ${texts.length > 100}`, ...new Set(found)];
}
