"""Word lists behind the lexicon: places, values and what they are values of, synonyms, abbreviations, stop words.

Plain data, one entry a word or pair, so that a domain expert can extend it. Everything is lower-case.
"""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


def _phrases(text: str) -> frozenset[str]:
    return frozenset(p.strip() for p in text.replace("\n", ",").split(",") if p.strip())


STOP_WORDS = word_set(
    """a an the this that these those of in on at to from by for with without as into onto than then so such and or
    but nor not no
    is are was were be been being am do does did done have has had having will would shall should can could may might must
    i you he she it we they me him her us them my your his its our their mine yours hers ours theirs who whom whose which what
    when where why how there here also just please each every all any some both either neither own same about over under above
    below between among during before after since until through per up down out off again ever never only more most less least
    many much few very too if while because across within along around against toward towards upon throughout
    whether besides despite among amongst together alongside onto via unless anything anybody anyone something
    somebody someone everything
    everybody everyone nothing nobody none s t d ll re ve m don didn doesn isn aren wasn weren hasn haven hadn"""
)

# country: demonyms and other names
COUNTRIES_TEXT = """afghanistan=afghan,afghani;albania=albanian;algeria=algerian;andorra=andorran;angola=angolan
argentina=argentine,argentinian;armenia=armenian;australia=australian;austria=austrian;azerbaijan=azerbaijani;bahamas=bahamian
bahrain=bahraini;bangladesh=bangladeshi;barbados=barbadian;belarus=belarusian;belgium=belgian;belize=belizean;benin=beninese
bhutan=bhutanese;bolivia=bolivian;bosnia and herzegovina=bosnian,bosnia;botswana=botswanan;brazil=brazilian,brasil
brunei=bruneian;bulgaria=bulgarian;burkina faso=burkinabe;burundi=burundian;cambodia=cambodian;cameroon=cameroonian
canada=canadian;chad=chadian;chile=chilean;china=chinese;colombia=colombian;congo=congolese;costa rica=costa rican
croatia=croatian,croat;cuba=cuban;cyprus=cypriot;czech republic=czech,czechia;denmark=danish,dane;dominican republic=dominican
ecuador=ecuadorian;egypt=egyptian;el salvador=salvadoran;eritrea=eritrean;estonia=estonian;ethiopia=ethiopian;fiji=fijian
finland=finnish,finn;france=french;gabon=gabonese;gambia=gambian;georgia=georgian;germany=german,deutschland;ghana=ghanaian
greece=greek;guatemala=guatemalan;guinea=guinean;guyana=guyanese;haiti=haitian;honduras=honduran;hungary=hungarian
iceland=icelandic;india=indian;indonesia=indonesian;iran=iranian;iraq=iraqi;ireland=irish;israel=israeli;italy=italian
ivory coast=ivorian,cote d'ivoire;jamaica=jamaican;japan=japanese;jordan=jordanian;kazakhstan=kazakh;kenya=kenyan
kuwait=kuwaiti;kyrgyzstan=kyrgyz;laos=laotian;latvia=latvian;lebanon=lebanese;liberia=liberian;libya=libyan
liechtenstein=;lithuania=lithuanian;luxembourg=luxembourgish;madagascar=malagasy;malawi=malawian;malaysia=malaysian
maldives=maldivian;mali=malian;malta=maltese;mauritania=mauritanian;mauritius=mauritian;mexico=mexican;moldova=moldovan
monaco=monegasque;mongolia=mongolian;montenegro=montenegrin;morocco=moroccan;mozambique=mozambican;myanmar=burmese,burma
namibia=namibian;nepal=nepalese,nepali;netherlands=dutch,the netherlands,holland;new zealand=new zealander,kiwi
nicaragua=nicaraguan;niger=nigerien;nigeria=nigerian;north korea=north korean;north macedonia=macedonian,macedonia
norway=norwegian;oman=omani;pakistan=pakistani;palestine=palestinian;panama=panamanian;paraguay=paraguayan;peru=peruvian
philippines=filipino,the philippines;poland=polish;portugal=portuguese;puerto rico=puerto rican;qatar=qatari;romania=romanian
russia=russian,russian federation;rwanda=rwandan;samoa=samoan;san marino=;saudi arabia=saudi,saudi arabian;senegal=senegalese
serbia=serbian,serb;seychelles=;sierra leone=sierra leonean;singapore=singaporean;slovakia=slovak,slovakian
slovenia=slovenian,slovene;somalia=somali;south africa=south african;south korea=south korean,korea,korean;south sudan=
spain=spanish,spaniard;sri lanka=sri lankan;sudan=sudanese;suriname=surinamese;sweden=swedish,swede;switzerland=swiss
syria=syrian;taiwan=taiwanese;tajikistan=tajik;tanzania=tanzanian;thailand=thai;togo=togolese;trinidad and tobago=trinidadian
tunisia=tunisian;turkey=turkish,turkiye;turkmenistan=turkmen;uganda=ugandan;ukraine=ukrainian
united arab emirates=emirati,uae;united kingdom=british,uk,u.k.,great britain,britain;england=english;scotland=scottish,scot
wales=welsh;northern ireland=northern irish
united states=american,usa,us,u.s.,u.s.a.,united states of america,the united states,the us,the usa
uruguay=uruguayan;uzbekistan=uzbek;venezuela=venezuelan;vietnam=vietnamese;yemen=yemeni;zambia=zambian;zimbabwe=zimbabwean
hong kong=hong konger;greenland=greenlandic;aruba=aruban;vatican city="""

COUNTRIES: dict[str, tuple[str, ...]] = {
    name.strip(): tuple(d for d in others.split(",") if d)
    for name, _, others in (entry.partition("=") for line in COUNTRIES_TEXT.splitlines() for entry in line.split(";") if entry)
}
# words that are far more often something else than the people of a country
_NOT_DEMONYMS = word_set("kiwi polish dominican finn dane swede us saudi")
DEMONYMS: dict[str, str] = {d: name for name, others in COUNTRIES.items() for d in others}

LANGUAGES = _phrases(
    """english, french, german, spanish, italian, portuguese, dutch, russian, chinese, japanese, korean, arabic,
    hindi, bengali,
    polish, turkish, greek, hebrew, swedish, danish, norwegian, finnish, czech, hungarian, romanian, ukrainian,
    vietnamese, thai,
    mandarin, cantonese, latin, swahili, urdu, persian, farsi, tamil, telugu, catalan, basque, welsh, irish"""
)

US_STATES: dict[str, str] = dict(
    entry.split("=")
    for entry in """alabama=al;alaska=ak;arizona=az;arkansas=ar;california=ca;colorado=co;connecticut=ct;delaware=de;florida=fl
georgia=ga;hawaii=hi;idaho=id;illinois=il;indiana=in;iowa=ia;kansas=ks;kentucky=ky;louisiana=la;maine=me;maryland=md
massachusetts=ma;michigan=mi;minnesota=mn;mississippi=ms;missouri=mo;montana=mt;nebraska=ne;nevada=nv;new hampshire=nh
new jersey=nj;new mexico=nm;north carolina=nc;north dakota=nd;ohio=oh;oklahoma=ok;oregon=or;pennsylvania=pa;rhode island=ri
south carolina=sc;south dakota=sd;tennessee=tn;texas=tx;utah=ut;vermont=vt;virginia=va;west virginia=wv;wisconsin=wi
wyoming=wy""".replace("\n", ";").split(";")
)

CITIES = _phrases(
    """london, paris, berlin, madrid, rome, vienna, amsterdam, rotterdam, utrecht, brussels, antwerp, oslo, bergen, stockholm,
    gothenburg, copenhagen, helsinki, dublin, lisbon, porto, barcelona, valencia, seville, milan, naples, turin,
    munich, hamburg,
    frankfurt, cologne, stuttgart, zurich, geneva, basel, prague, warsaw, krakow, budapest, bucharest, athens,
    istanbul, ankara,
    moscow, kyiv, kiev, lyon, marseille, toulouse, nice, lille, manchester, birmingham, liverpool, leeds, glasgow, edinburgh,
    cairo, lagos, nairobi, accra, johannesburg, cape town, casablanca, tunis, addis ababa, dubai, abu dhabi, riyadh, tehran,
    baghdad, tel aviv, jerusalem, kabul, karachi, lahore, delhi, new delhi, mumbai, bangalore, chennai, kolkata,
    dhaka, bangkok,
    hanoi, jakarta, manila, kuala lumpur, beijing, shanghai, shenzhen, guangzhou, seoul, busan, tokyo, osaka, kyoto, sydney,
    melbourne, brisbane, perth, auckland, wellington, toronto, montreal, vancouver, ottawa, calgary, mexico city, guadalajara,
    bogota, lima, quito, santiago, buenos aires, sao paulo, rio de janeiro, caracas, havana, new york city, los
    angeles, chicago,
    houston, phoenix, philadelphia, san antonio, san diego, dallas, austin, san jose, san francisco, seattle, denver, boston,
    detroit, miami, atlanta, portland, las vegas, baltimore, minneapolis, cleveland, pittsburgh, cincinnati, orlando, tampa,
    sacramento, fremont, oakland, fresno, riverside, long beach, aberdeen, anchorage, nashville, memphis"""
)
CONTINENTS = _phrases("africa, asia, europe, north america, south america, oceania, antarctica, latin america")

COLOURS = word_set(
    """red blue green yellow black white grey gray orange purple pink brown silver gold violet beige turquoise maroon
    navy teal
    amber crimson bronze blond auburn"""
)

# attribute: the column names it goes by, the likeliest first
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "status": ("status", "state"),
    "priority": ("priority", "severity"),
    "level": ("level", "priority", "severity"),
    "country": ("country", "nation", "nationality", "citizenship"),
    "state": ("state", "province", "location"),
    "city": ("city", "town", "location"),
    "continent": ("continent", "region"),
    "colour": ("color", "colour"),
    "weekday": ("weekday", "day_of_week"),
    "month": ("month",),
    "gender": ("gender", "sex"),
    "language": ("language",),
    "channel": ("channel", "source", "medium"),
    "platform": ("platform", "os", "device"),
    "tier": ("tier", "level", "plan"),
    "size": ("size",),
    "marital": ("marital_status",),
    "payment": ("payment_method", "payment_type"),
    "season": ("season",),
    "segment": ("segment", "type"),
    "currency": ("currency",),
}

_VALUE_LISTS: dict[str, str] = {
    "status": """open, closed, cancelled, canceled, pending, delivered, returned, shipped, active, inactive, completed,
        approved, rejected, draft, unpaid, refunded, overdue, suspended, archived, expired, processing, failed, resolved,
        unresolved, published, unpublished, in progress, on hold, discontinued, accepted, declined, denied,
        dispatched,
        processed, confirmed, unconfirmed, withdrawn, terminated, abandoned, blocked, disputed""",
    "priority": "urgent, critical, high priority, low priority",
    "level": "high, medium, low",
    "weekday": "monday, tuesday, wednesday, thursday, friday, saturday, sunday",
    "month": "january, february, march, april, may, june, july, august, september, october, november, december",
    "gender": "male, female, man, woman, men, women, males, females",
    "channel": """web, app, store, phone, email, online, in-store, website, mobile app, call center,
        call centre, retail, wholesale""",
    "platform": "android, ios, windows, linux, macos, desktop, mobile, iphone, ipad",
    "tier": "gold, silver, platinum, bronze, premium, basic, free, pro, standard, enterprise",
    "size": "small, medium, large, xl, xxl",
    "marital": "married, single, divorced, widowed",
    "payment": "credit card, debit card, cash, paypal, bank transfer, invoice, cheque, visa, mastercard",
    "season": "spring, summer, autumn, fall, winter",
    "segment": "enterprise, smb, consumer, corporate, wholesale, residential, commercial",
    "currency": "eur, usd, gbp, jpy, chf, euro, euros, dollars, czk, sek, nok, dkk",
}


def _value_attributes() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}

    def add(word: str, attribute: str) -> None:
        if attribute not in found.setdefault(word, []):
            found[word].append(attribute)

    for attribute, values in _VALUE_LISTS.items():
        for value in _phrases(values):
            add(value, attribute)
    for name in COUNTRIES:
        add(name, "country")
    for demonym in DEMONYMS:
        if demonym not in _NOT_DEMONYMS:
            add(demonym, "country")
    for state in US_STATES:
        add(state, "state")
    for members, attribute in ((CITIES, "city"), (CONTINENTS, "continent"), (COLOURS, "colour"), (LANGUAGES, "language")):
        for value in members:
            add(value, attribute)
    return {word: tuple(attributes) for word, attributes in found.items()}


VALUE_ATTRIBUTES: dict[str, tuple[str, ...]] = _value_attributes()

# one spelling for values that databases write in several ways
VALUE_SPELLINGS: dict[str, str] = {
    **DEMONYMS,
    **{code: state for state, code in US_STATES.items() if code not in ("in", "or", "me", "hi", "ok", "id", "al", "la", "us")},
    **dict.fromkeys(("m", "man", "men", "males"), "male"),
    **dict.fromkeys(("f", "w", "woman", "women", "females"), "female"),
    **dict.fromkeys(("yes", "y", "t"), "true"),
    **dict.fromkeys(("no", "n"), "false"),
    "asian": "asia",
    "european": "europe",
    "african": "africa",
    "north american": "north america",
    "south american": "south america",
    "canceled": "cancelled",
    "grey": "gray",
    "colour": "color",
    "nyc": "new york city",
    "la": "los angeles",
}

# words that stand for one another in column names
SYNONYMS: tuple[frozenset[str], ...] = tuple(
    frozenset(group.split())
    for group in """salary pay earn wage compensation payment paid income remuneration
cost price charge fee rate
amount total sum value
revenue sale turnover amount earning
city town municipality
country nation nationality citizenship national citizen
employee staff worker personnel
customer client buyer shopper account
person people individual human
user member account
student pupil
teacher instructor professor lecturer
doctor physician
company firm business organization organisation enterprise corporation
department division unit
product item article good
order purchase
film movie
song track
author writer
book title publication
gender sex
color colour
birth born birthday
death die died dead
phone telephone mobile cell
email mail
address location street
location place site venue
quantity stock count number
duration length long time last
length long duration
stay duration length
height tall high
weight heavy weigh
age old
date day time timestamp datetime
year season
rank position ranking place
score point mark grade result
status state condition
type kind category class
category genre type
description detail text comment
picture image photo
start begin open
end finish close
close finish resolve
create creation make insert add open
update modify change
register enroll enrol signup join
hire employ start
found establish launch
release issue publish launch
issue bill
win victory winner
loss lose defeat
population inhabitant resident
area surface size
region area zone territory
manager supervisor boss
language tongue
identifier id key number
name title label
surname lastname
car vehicle automobile
ship vessel boat
flight plane
aircraft airplane plane
fast speed quick
seat capacity
job occupation profession role position
role position
team club squad
match game
horsepower hp power
mpg mileage
rating star score
vote ballot
view visit
postal zip postcode
homeland hometown country
budget fund
distance mile kilometer
temperature heat
website url web homepage
head leader boss
charter contract
borrow loan lend
admit admission
discharge release
refer referral
employee worker
store shop outlet
warehouse depot
credit limit
sensor device
measure reading record
tier level
segment sector
quarter q
cancel cancellation
delivery deliver
shipment ship shipping
pay payment paid
arrive arrival
depart departure leave
attend attendance attendee
enrollment enroll enrolment
race ethnicity
nickname alias
major subject field
course class
abbreviation acronym code
expense expenditure cost spend
spend amount cost spent
sell sale sold
member membership
elevation altitude height
founder found
owner own
producer produce manufacturer maker make
manufacturer maker brand make
latitude lat
longitude lng lon
weekday day
hour time
active enable
percent percentage pct rate share
population people
hour duration
minute duration time
""".splitlines()
    if group
)

ABBREVIATIONS: dict[str, str] = _pairs(
    """qty=quantity amt=amount num=number no=number nbr=number nr=number cust=customer dept=department
    desc=description
descr=description addr=address acct=account acc=account avg=average cnt=count cat=category ctry=country cd=code
dt=date dob=birthdate
emp=employee fname=firstname lname=lastname img=image inv=invoice lang=language loc=location mgr=manager
mgmt=management msg=message
org=organization pct=percent perc=percent pop=population pos=position prod=product pwd=password qtr=quarter
ref=reference reg=region
sal=salary stat=status std=standard stu=student temp=temperature tel=telephone tot=total trans=transaction
txn=transaction ts=timestamp
usr=user val=value vol=volume wt=weight ht=height yr=year mon=month mo=month hr=hour min=minimum max=maximum
cur=currency curr=currency
disc=discount info=information lat=latitude lng=longitude lon=longitude lgth=length maint=maintenance
mfr=manufacturer opp=opponent
pmt=payment prof=professor prev=previous pref=preference pri=priority proj=project rel=release req=request
sched=schedule sec=second
seq=sequence svc=service sz=size tbl=table uid=user vac=vacation ver=version whse=warehouse attr=attribute
auth=author bal=balance
bldg=building chg=charge cmt=comment config=configuration ctr=center del=delivery dest=destination dist=district div=division
edu=education equip=equipment est=established ext=extension freq=frequency grp=group hosp=hospital instr=instructor lvl=level
natl=national oper=operation pkg=package ppl=people qual=quality rec=record rcpt=receipt rest=restaurant sku=sku
spec=specification
src=source subj=subject sup=supplier tech=technology"""
)

# words of a column name that say little by themselves
GENERIC_WORDS = word_set(
    """id identifier name title date time number code type value amount total count key text description day status
    full label item"""
)

# nouns whose modifier or neighbour names their value: "the garden category", "team Atlas"
VALUE_NOUNS = word_set(
    """segment department category plan branch office team region tier channel status priority platform city country
    state county
    ward type class level group division league genre language district brand currency sector industry role title
    major college
    continent province campus format medium colour color nationality severity stage grade house condition zone
    territory borough
    queue topic tag label vendor supplier model series season subject specialty speciality province village town street race
    circuit airline airport store warehouse sensor site customer manager author publisher artist album"""
)
# of those, nouns that "in the <value> <noun>" makes a sure value of
SURE_VALUE_NOUNS = word_set(
    """segment department category plan branch office team region tier channel status priority platform city country
    state county
    ward division league genre language district brand currency sector industry continent province queue severity
    stage role"""
)

# what rows are of; "order amount" is the amount of an order
ENTITY_NOUNS = word_set(
    """order customer product invoice ticket employee loan visit sale subscription event user person people client
    account payment
    transaction student teacher course school player team match game car driver race flight ship book film movie song
    album artist
    author singer concert stadium shop store company department city country patient doctor member item purchase
    shipment delivery
    warehouse supplier vendor agent reading sensor booking reservation guest hotel room property house document
    template review
    user post comment card superhero molecule atom bond client district card singer dog cat pet professional battle
    visitor museum
    high_schooler airport airline conductor orchestra performance poker_player tv_channel cartoon owner treatment
    paper project
    task message session campaign lead deal contract claim policy case request complaint return refund record row
    entry male female
    man woman child kid adult friend follower subscriber contact partner manager worker staff driver passenger tenant landlord
    building apartment branch office region site device machine vehicle bike trip ride route station stop train bus plane parcel
    nurse bill flight winner director actor film request job applicant candidate quote asset payment refund"""
)

# nouns that hold a figure: "how many points" and "number of pages" are often columns, not counts
MEASURE_NOUNS = word_set(
    """point goal vote view mile kilometer km yard pound dollar euro day week month year hour minute second page seat
    bedroom bathroom
    floor calorie gram kilogram kg meter metre foot inch people inhabitant hp horsepower cylinder lap win loss star
    percent degree
    times time answer comment favorite score stay capacity copy share unit credit student enrollment test_taker taker"""
)

UNITS = word_set(
    """day week month year hour minute second mile kilometer km meter metre foot inch pound kilogram kg gram ton
    dollar euro percent
    degree celsius cent usd eur litre liter gallon cm mm ms g million billion thousand k"""
)

# words that ask for an order in languages that are named and not read offline; the last ones are looked for inside a text
ORDER_WORDS_ELSEWHERE = word_set(
    """sortiert sortiere sortieren geordnet absteigend aufsteigend absteigender aufsteigender reihenfolge
    gesorteerd gesorteerde sorteer geordend aflopend oplopend aflopende oplopende volgorde
    ordenado ordenada ordenados ordenadas ordena ordenar descendente ascendente
    trié triée triés triées trier trie croissant décroissant croissante décroissante
    ordinato ordinata ordinati ordinate ordina crescente decrescente
    отсортировать отсортируй сортировка сортировать отсортированные убыванию возрастанию
    posortuj posortowane rosnąco malejąco sorterat sorterade stigande fallande"""
)
ORDER_SIGNS_ELSEWHERE = ("昇順", "降順", "順に", "並べ", "排序", "升序", "降序", "排列", "정렬", "순으로")
